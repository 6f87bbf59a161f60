#include "trainer/nn/dense.h"

#include <cmath>

#include "trainer/random.h"

namespace trainer {

void Dense::bind(float* parameters, float* gradients) {
  parameters_ = parameters;
  gradients_ = gradients;
}

void Dense::initialize(std::uint64_t seed, std::uint32_t layer) {
  const float limit = std::sqrt(6.0F / static_cast<float>(inputs_ + outputs_));
  for (std::size_t input = 0; input < inputs_; ++input) {
    for (std::size_t output = 0; output < outputs_; ++output) {
      const auto bits = random_at(seed, RandomStream::weights, layer, input * outputs_ + output);
      parameters_[offset(input, output)] = limit * (2 * uniform(bits[0]) - 1);
    }
  }
}

void Dense::forward(std::size_t rows, const float* x, std::size_t x_row, float* y) const {
  kernels_->gemm({.m = rows,
                  .k = inputs_,
                  .panels = panels(),
                  .a = x,
                  .a_row = x_row,
                  .b = parameters_ + width(),
                  .c = y,
                  .c_row = width(),
                  .c_panel = k_panel,
                  .accumulate = false});
}

void Dense::backward_input(std::size_t rows, const float* dy, float* dx, float* scratch) const {
  const std::size_t k = outputs_;
  for (std::size_t input = 0; input < inputs_; ++input) {
    float* column = scratch + input / k_panel * k * k_panel + input % k_panel;
    for (std::size_t output = 0; output < k; ++output) {
      column[output * k_panel] = parameters_[offset(input, output)];
    }
  }
  // One panel of dy: its rows are 16 apart.
  kernels_->gemm({.m = rows,
                  .k = k,
                  .panels = inputs_ / k_panel,
                  .a = dy,
                  .a_row = k_panel,
                  .b = scratch,
                  .c = dx,
                  .c_row = k_panel,
                  .c_panel = rows * k_panel,
                  .accumulate = false});
}

void Dense::backward_weight(std::size_t rows, const float* x, std::size_t x_row, const float* dy,
                            std::size_t first, std::size_t count, bool accumulate) const {
  kernels_->gemm({.m = inputs_,
                  .k = rows,
                  .panels = count,
                  .a = x,
                  .a_row = 1,
                  .a_column = x_row,
                  .b = dy + first * rows * k_panel,
                  .c = gradients_ + width() + first * inputs_ * k_panel,
                  .c_row = k_panel,
                  .c_panel = inputs_ * k_panel,
                  .accumulate = accumulate});
}

std::vector<float> Dense::export_weight(std::span<const float> run) const {
  std::vector<float> weight(outputs_ * inputs_);
  for (std::size_t output = 0; output < outputs_; ++output) {
    for (std::size_t input = 0; input < inputs_; ++input) {
      weight[output * inputs_ + input] = run[offset(input, output)];
    }
  }
  return weight;
}

void Dense::import_weight(std::span<const float> weight, std::span<float> run) const {
  for (std::size_t output = 0; output < outputs_; ++output) {
    for (std::size_t input = 0; input < inputs_; ++input) {
      run[offset(input, output)] = weight[output * inputs_ + input];
    }
  }
}

} // namespace trainer
