// A fully connected layer with the CPU's packed products: the weight in panel layout
// (device/cpu/kernels.h), activations of a hidden layer (B, O) row-major with O padded to whole
// panels, logits and all gradients of activations in panels, (O / 16, B, 16). The operation after
// the product, which reads y anyway, adds the bias, and also sums its gradient.
#pragma once

#include "trainer/device/cpu/kernels.h"
#include "trainer/nn/dense.h"

namespace trainer {

class CpuDense final : public Dense {
 public:
  CpuDense(const std::string& name, std::size_t inputs, std::size_t outputs, bool is_first,
           TensorTable& tensors, const CpuKernels& kernels)
      : Dense(name, inputs, outputs, Layout::panels, tensors),
        x_row_(is_first ? inputs : padded(inputs)), kernels_(kernels) {}

  std::size_t row(std::size_t values) const override { return padded(values); }
  void make_room() override;
  void forward(const UnitMemory& memory, std::size_t rows, const float* x, bool relu,
               float* y) const override;
  bool score(const UnitMemory& memory, std::span<const std::int32_t> labels, const float* x,
             const float* scale, bool accumulate, float* logits, float* dx,
             Score* to) const override;
  /// Computes as many panels at a time as the owner's granularity() says.
  void backward_weight(const UnitMemory& memory, std::size_t rows, const float* x, const float* dy,
                       bool accumulate, ParameterOwner* owner) const override;
  void backward_input(const UnitMemory& memory, std::size_t rows, const float* dy, const float* x,
                      bool is_same, bool accumulate, float* dbias, float* dx) override;

 private:
  std::size_t width() const { return padded(outputs()); }
  std::size_t panels() const { return width() / k_panel; }

  std::size_t x_row_; ///< Row stride of x.
  const CpuKernels& kernels_;
  Buffer transposed_{0}; ///< Wᵀ, for backward_input(): (O / 16, I / 16, ≤ 16 outputs, 16 inputs).
};

} // namespace trainer
