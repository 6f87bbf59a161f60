// Attention of each token to all tokens of its row, in several heads: softmax(Q·Kᵀ / √D)·V.
//
// Letters: B rows of T tokens, H wide, in heads of D each. Of each head a pass keeps the T × T
// probabilities for backward. Cost: 4·B·T²·H FLOP forward, 8·B·T²·H backward.
#pragma once

#include "trainer/nn/cpu/dropout.h"
#include "trainer/nn/cpu/matrix.h"

namespace trainer {

/// What backward reads again of forward, and what is done in.
struct AttentionRoom {
  AttentionRoom(std::size_t rows, std::size_t length, std::size_t width, std::size_t heads);

  Matrix kept;          ///< (T, T): what was not dropped.
  Matrix changes;       ///< (T, T): gradients of the probabilities.
  Buffer packed;        ///< A head's keys or values, transposed.
  Buffer probabilities; ///< (B, heads, T, T and what fills it up)
};

class Attention {
 public:
  /// D = width / heads is a multiple of 16. The probabilities are dropped by `rule`.
  Attention(std::size_t width, std::size_t heads, const DropoutRule& rule, std::uint32_t site,
            const CpuKernels& kernels);

  /// Outlives it.
  void use(AttentionRoom& room) { room_ = &room; }

  /// qkv (B·T, 3·H) → context (B·T, H)
  void forward(const TextPass& pass, const Matrix& qkv, const Matrix& context);
  /// Of the pass before: the gradient of context → that of qkv.
  void backward(const TextPass& pass, const Matrix& qkv, const Matrix& change, const Matrix& dqkv);

 private:
  float* probabilities(const TextPass& pass, std::size_t row, std::size_t head) const;
  Dropped dropped(const TextPass& pass, std::size_t row, std::size_t head) const;

  std::size_t width_;
  std::size_t heads_;
  std::size_t depth_; ///< D
  float scale_;
  const CpuKernels* kernels_;
  Dropout dropout_;
  AttentionRoom* room_ = nullptr;
};

} // namespace trainer
