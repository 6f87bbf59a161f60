// A fully connected layer: y = x·W + b.
//
// Its parameters are one run of floats, [bias | weight], the weight in panel layout (see
// device/cpu/kernels.h), and its gradients another of the same form. The bias is added by the
// activation that follows, which reads y anyway, and which also sums its gradient.
//
// Letters: B rows of the batch, I inputs, O outputs padded to whole panels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/device/cpu/kernels.h"

namespace trainer {

class Dense {
 public:
  Dense(std::size_t inputs, std::size_t outputs, const CpuKernels& kernels)
      : inputs_(inputs), outputs_(outputs), kernels_(&kernels) {}

  std::size_t inputs() const { return inputs_; }
  std::size_t outputs() const { return outputs_; }
  std::size_t width() const { return padded(outputs_); } ///< O
  std::size_t panels() const { return width() / k_panel; }

  /// Floats that bias and weight take, padding included.
  std::size_t parameter_count() const { return width() * (inputs_ + 1); }

  /// Where parameters and gradients live; parameter_count() floats each.
  void bind(float* parameters, float* gradients);

  /// Glorot uniform, as Keras' Dense: ±sqrt(6 / (inputs + outputs)), bias 0. Number (i, o) depends
  /// on seed and layer only.
  void initialize(std::uint64_t seed, std::uint32_t layer);

  const float* bias() const { return parameters_; }
  float* bias_gradient() const { return gradients_; }

  /// y = x·W, y row-major (B, O).
  void forward(std::size_t rows, const float* x /* (B, I) */, std::size_t x_row, float* y) const;

  /// dx = dy·Wᵀ in panels (I / 16, B, 16); inputs must be whole panels. dy is (B, O) in panels.
  /// `scratch` holds outputs · padded(inputs) floats: Wᵀ.
  void backward_input(std::size_t rows, const float* dy, float* dx, float* scratch) const;

  /// dW = xᵀ·dy, or dW += xᵀ·dy, for `count` panels from `first` on. dy is in panels (O / 16, B,
  /// 16).
  void backward_weight(std::size_t rows, const float* x, std::size_t x_row, const float* dy,
                       std::size_t first, std::size_t count, bool accumulate) const;

  /// The weight as others store it, row-major [outputs, inputs], from or to a run of floats of this
  /// layer's form (parameters, or an optimizer's moments).
  std::vector<float> export_weight(std::span<const float> run) const;
  void import_weight(std::span<const float> weight, std::span<float> run) const;

 private:
  std::size_t inputs_;
  std::size_t outputs_;
  const CpuKernels* kernels_;
  float* parameters_ = nullptr;
  float* gradients_ = nullptr;

  /// Of weight (input, output) within a run.
  std::size_t offset(std::size_t input, std::size_t output) const {
    return width() + (output / k_panel * inputs_ + input) * k_panel + output % k_panel;
  }
};

} // namespace trainer
