// What a masked language model says of the masked tokens, and of no other: a dense layer, GELU,
// norm, and the words' own embedding rows as the decoder, with a bias a word; softmax
// cross-entropy.
//
// Letters: M masked tokens of a pass, filled up to whole panels, V words, H wide. Logits are kept
// as (V, M), a word a row, so that the embedding's rows are read as they lie, a block of them at a
// time: forward makes their logits, and of each token the largest and the sum; backward turns a
// block's logits into their gradient and multiplies by it both ways while it is in the caches.
// Cost: 6·M·V·H FLOP, and the embedding read three times and its gradient written once.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainer/nn/batch.h"
#include "trainer/nn/cpu/layer_norm.h"
#include "trainer/nn/cpu/linear.h"
#include "trainer/nn/cpu/matrix.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

class MaskedHead {
 public:
  /// Adds its tensors, in the order in which backward finishes them, a unit.
  MaskedHead(const HeadNames& names, std::size_t width, std::size_t vocabulary, float epsilon,
             TensorTable& tensors, const CpuKernels& kernels);

  std::size_t unit() const { return unit_; }
  void initialize(std::span<float> arena) const { norm_.initialize(arena); }
  void make_room(std::size_t most_masked);

  /// Of x (N, H): the logits of what is masked, and their score, a sample each masked token.
  /// `memory`: of its unit; `words`: of the words' rows (V, H).
  Score forward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                const Tokens& tokens, const Matrix& x);
  /// Of the pass before. `change` (N, H) becomes x's gradient of `scale` times the rows' losses;
  /// the words' gradient is written over, or with pass.accumulate added to.
  void backward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                const Tokens& tokens, float scale, const Matrix& change);

  /// After forward(): those (V) of masked token number `masked` of the pass.
  void logits(std::size_t masked, std::span<float> to) const;

 private:
  std::size_t filled() const; ///< M, filled up.

  std::size_t width_;
  std::size_t vocabulary_;
  const CpuKernels* kernels_;
  std::size_t unit_;
  std::size_t bias_; ///< Where it lies in the unit.
  LayerNorm norm_;
  Linear dense_;
  std::vector<std::size_t> places_;  ///< (M): the tokens, of N.
  std::vector<std::size_t> targets_; ///< (M)
  std::vector<std::size_t> by_word_; ///< (M): their numbers, by target.
  std::vector<float> largest_;       ///< (M): of each token's logits,
  std::vector<float> log_sum_;       ///< and the logarithm of the sum of their exponentials.
  std::vector<float> weight_;        ///< (M): of its loss.
  Matrix picked_;                    ///< (M, H)
  Matrix u_;                         ///< (M, H): before GELU,
  Matrix g_;                         ///< and behind it,
  Matrix h_;                         ///< and normalised;
  Matrix change_;                    ///< its gradient.
  Buffer packed_{0};                 ///< h transposed, in panels.
  Buffer weight_room_{0};            ///< (H, H): the dense layer's, transposed.
  Matrix logits_;                    ///< (V, M)
};

} // namespace trainer
