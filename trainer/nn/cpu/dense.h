// A fully connected layer: y = x·W + b.
//
// Its parameters are two tensors, NAME.bias and NAME.weight, one behind the other, the weight in
// panel layout (see device/cpu/kernels.h). The bias is added by the activation that follows, which
// reads y anyway, and which also sums its gradient.
//
// Letters: B rows of the batch, I inputs, O outputs padded to whole panels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trainer/device/buffer.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class Dense {
 public:
  /// Adds its tensors to `tensors`, a unit. What is read and written is that unit's memory.
  Dense(const std::string& name, std::size_t inputs, std::size_t outputs, TensorTable& tensors,
        const CpuKernels& kernels);

  std::size_t inputs() const { return inputs_; }
  std::size_t outputs() const { return outputs_; }
  std::size_t width() const { return padded(outputs_); } ///< O
  std::size_t panels() const { return width() / k_panel; }

  std::size_t unit() const { return unit_; }
  /// Where in the arenas its weight begins, and where its parameters end.
  std::size_t weight_first() const { return first_ + width(); }
  std::size_t last() const { return first_ + width() * (inputs_ + 1); }

  /// Glorot uniform, as Keras' Dense: ±sqrt(6 / (inputs + outputs)), bias 0. Number (i, o) depends
  /// on seed and layer only.
  void initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const;

  static const float* bias(const UnitMemory& memory) { return memory.weights; }
  static float* bias_gradient(const UnitMemory& memory) { return memory.gradients; }

  /// For backward_input(); once.
  void make_room();

  /// y = x·W, x (B, I) with rows `x_row` apart, y (B, O) row-major or, with `in_panels`,
  /// (O / 16, B, 16).
  void forward(const UnitMemory& memory, std::size_t rows, const float* x, std::size_t x_row,
               float* y, bool in_panels) const;

  /// dx = dy·Wᵀ in panels (I / 16, B, 16), I filled up; dy likewise (O / 16, B, 16). `is_same`: the
  /// parameters are those of the last call.
  void backward_input(const UnitMemory& memory, std::size_t rows, const float* dy, float* dx,
                      bool is_same);

  /// dW = xᵀ·dy, or dW += xᵀ·dy, for `count` panels from `first` on. dy is in panels (O / 16, B,
  /// 16).
  void backward_weight(const UnitMemory& memory, std::size_t rows, const float* x,
                       std::size_t x_row, const float* dy, std::size_t first, std::size_t count,
                       bool accumulate) const;

 private:
  std::size_t inputs_;
  std::size_t outputs_;
  std::size_t unit_;
  std::size_t first_;
  const CpuKernels* kernels_;
  Buffer transposed_{0}; ///< Wᵀ, for backward_input(): (O / 16, I / 16, ≤ 16 outputs, 16 inputs).

  /// Of weight (input, output) in the unit.
  std::size_t offset(std::size_t input, std::size_t output) const {
    return width() + (output / k_panel * inputs_ + input) * k_panel + output % k_panel;
  }
};

} // namespace trainer
