// A dense layer of a transformer: y = x·Wᵀ + bias, over many rows, whose bias what follows adds.
//
// Its tensors are NAME.bias [O] and NAME.weight [O, I], the weight in panel layout
// (device/cpu/kernels.h). Letters: N rows, I inputs and O outputs, both multiples of 16. Products
// are cut so that what one reads again and again stays in a core's second cache: the rows of x by
// columns of so many inputs forward and for x's gradient, and the panels of dW for the weight's.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trainer/nn/cpu/matrix.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class Linear {
 public:
  /// Adds its tensors to the unit of `tensors` that was begun last, whose memory is what is read
  /// and written.
  Linear(const std::string& name, std::size_t inputs, std::size_t outputs, TensorTable& tensors,
         const CpuKernels& kernels);

  std::size_t last() const { return weight_ + inputs_ * outputs_; } ///< Of it in the unit.

  const float* bias(const UnitMemory& memory) const { return memory.weights + bias_; }
  float* bias_gradient(const UnitMemory& memory) const { return memory.gradients + bias_; }

  /// y (N, O) = x (N, I)·Wᵀ, rows `x_stride` and `y_stride` apart.
  void forward(const UnitMemory& memory, std::size_t rows, const float* x, std::size_t x_stride,
               float* y, std::size_t y_stride) const;
  /// dx = dy·W, or +=. `room` has place for W, which it is done in.
  void backward_input(const UnitMemory& memory, std::size_t rows, const float* dy,
                      std::size_t dy_stride, float* dx, std::size_t dx_stride, bool accumulate,
                      float* room) const;
  /// dW = dyᵀ·x, or +=.
  void backward_weight(const UnitMemory& memory, std::size_t rows, const float* x,
                       std::size_t x_stride, const float* dy, std::size_t dy_stride,
                       bool accumulate) const;

 private:
  std::size_t inputs_;
  std::size_t outputs_;
  std::size_t bias_;   ///< Where it lies in the unit.
  std::size_t weight_; ///< Likewise.
  const CpuKernels* kernels_;
};

} // namespace trainer
