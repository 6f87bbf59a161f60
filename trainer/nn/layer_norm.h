// Normalisation of each row to mean 0 and variance 1, then times a gain and plus a shift: tensors
// NAME.weight and NAME.bias, of the rows' width.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "trainer/nn/matrix.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class LayerNorm {
 public:
  LayerNorm(const std::string& name, std::size_t width, float epsilon, TensorTable& tensors,
            const CpuKernels& kernels)
      : epsilon_(epsilon), gain_(tensors[tensors.add(name + ".weight", {width})].offset),
        shift_(tensors[tensors.add(name + ".bias", {width})].offset), width_(width),
        kernels_(&kernels.transformer) {}

  void bind(std::span<float> parameters, std::span<float> gradients) {
    parameters_ = parameters.data();
    gradients_ = gradients.data();
  }
  void initialize() const { std::fill_n(parameters_ + gain_, width_, 1.0F); }

  /// y = norm(x), of the shape's rows, which are at most `most_rows` as make_room() was told.
  void forward(const RowShape& shape, const float* x, float* y) const {
    kernels_->norm(shape, x, parameters_ + gain_, parameters_ + shift_, epsilon_, y,
                   moments_.data());
  }
  /// dy becomes dx; gradients are added with `accumulate`, else written over.
  void backward(const RowShape& shape, const float* x, float* dy, bool accumulate) const {
    if (!accumulate) {
      std::fill_n(gradients_ + gain_, width_, 0.0F);
      std::fill_n(gradients_ + shift_, width_, 0.0F);
    }
    kernels_->norm_backward(shape, x, moments_.data(), parameters_ + gain_, dy, gradients_ + gain_,
                            gradients_ + shift_);
  }
  void make_room(std::size_t most_rows) { moments_ = Buffer(2 * most_rows); }

 private:
  float epsilon_;
  std::size_t gain_; ///< Where it lies in the arenas.
  std::size_t shift_;
  std::size_t width_;
  const TransformerKernels* kernels_;
  float* parameters_ = nullptr;
  float* gradients_ = nullptr;
  Buffer moments_{0};
};

} // namespace trainer
