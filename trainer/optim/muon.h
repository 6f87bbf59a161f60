// Muon (Jordan, 2024), as in torch.optim.Muon: a matrix moves along its momentum, whose singular
// values have all been brought near 1.
//
//   m = μ·m + (1-μ)·g;  u = (1-μ)·g + μ·m;  X = u / |u|, the shorter side its rows
//   five times  A = X·Xᵀ;  X = a·X + (b·A + c·A²)·X
//   p = p·(1 - rate·decay) - rate·0.2·sqrt(longer side)·X
//
// The last factor gives a step the size of AdamW's ("match_rms_adamw"), so that one learning rate
// serves both. A matrix of R × C values, R the shorter side, takes 10·R·(2·R·C + R²) FLOP a step,
// in float32 (in bf16 in PyTorch).
#pragma once

#include <span>

#include "trainer/device/device.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

/// Whether Muon updates a tensor: matrices and convolution kernels as [outputs, all else]; not
/// embeddings, biases and norms.
bool is_for_muon(const Tensor& tensor);

class Muon {
 public:
  /// Allocates scratch memory for the largest matrix of `tensors`.
  Muon(const TensorTable& tensors, Device& device);

  /// Where a tensor goes: `count` values from its place in an arena on, to be taken `ratio` times.
  struct Direction {
    const float* values; ///< Until the next call.
    std::size_t count;
    float ratio;
  };
  /// Queues on the device's stream what brings the singular values of `u`, the tensor's part of an
  /// arena, near 1; overwrites it.
  Direction orthogonalised(const Tensor& tensor, float* u) const;

 private:
  float* orthogonal(std::size_t rows, std::size_t columns, float* x) const;

  Device& device_;
  Buffer matrix_; ///< X, of a tensor in panels, and the next X, alternating,
  Buffer next_;
  Buffer square_; ///< and A, and A².
  Buffer square_of_it_;
  Buffer squares_; ///< A SquareSum.
};

} // namespace trainer
