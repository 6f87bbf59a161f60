// Muon (Jordan, 2024), as torch.optim.Muon has it: a matrix moves along its momentum, of which all
// singular values have been brought near 1.
//
//   m = μ·m + (1-μ)·g;  u = (1-μ)·g + μ·m;  X = u / |u|, the shorter side its rows
//   five times  A = X·Xᵀ;  X = a·X + (b·A + c·A²)·X
//   p = p·(1 - rate·decay) - rate·0.2·sqrt(longer side)·X
//
// The last factor gives a step the size of AdamW's ("match_rms_adamw"), so that one learning rate
// serves both. Of R × C values, R the shorter side, it takes 10·R·(2·R·C + R²) FLOP a step, in
// float32, where PyTorch's is in bf16.
#pragma once

#include <span>

#include "trainer/device/device.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

/// A kernel's tensor, [outputs, all else], is a matrix for it; what is looked up row by row, biases
/// and norms are not.
bool is_for_muon(const Tensor& tensor);

class Muon {
 public:
  /// Room for the largest matrix of `tensors`.
  Muon(const TensorTable& tensors, Device& device);

  /// Puts on the device's stream: a step of this tensor, of which all arrays hold what it takes in
  /// an arena.
  void update(const Tensor& tensor, const UpdateRule& rule, const StepState* state,
              const float* gradient, float* m, const Parameters& parameters) const;

 private:
  float* orthogonal(std::size_t rows, std::size_t columns, float* x) const;

  Device& device_;
  Buffer direction_; ///< As in an arena.
  Buffer matrix_;    ///< X, and what becomes it, in turn,
  Buffer next_;
  Buffer square_; ///< and A, and A².
  Buffer square_of_it_;
  Buffer squares_; ///< A sum, of float64.
};

} // namespace trainer
