#include "trainer/nn/cpu/dense.h"

#include <algorithm>
#include <cmath>

#include "trainer/random.h"

namespace trainer {

Dense::Dense(const std::string& name, std::size_t inputs, std::size_t outputs, TensorTable& tensors,
             const CpuKernels& kernels)
    : inputs_(inputs), outputs_(outputs), unit_(tensors.begin_unit()), first_(tensors.arena_size()),
      kernels_(&kernels) {
  tensors.add(name + ".bias", {outputs});
  tensors.add(name + ".weight", {outputs, inputs}, Layout::panels);
}

void Dense::initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const {
  const float limit = std::sqrt(6.0F / static_cast<float>(inputs_ + outputs_));
  for (std::size_t input = 0; input < inputs_; ++input) {
    for (std::size_t output = 0; output < outputs_; ++output) {
      const auto bits = random_at(seed, RandomStream::weights, layer, input * outputs_ + output);
      arena[first_ + offset(input, output)] = limit * (2 * uniform(bits[0]) - 1);
    }
  }
}

void Dense::make_room() {
  if (transposed_.size() == 0) {
    transposed_ = Buffer(outputs_ * padded(inputs_));
  }
}

void Dense::forward(const UnitMemory& memory, std::size_t rows, const float* x, std::size_t x_row,
                    float* y, bool in_panels) const {
  kernels_->product({.m = rows,
                     .k = inputs_,
                     .panels = panels(),
                     .a = x,
                     .a_row = x_row,
                     .b = memory.weights + width(),
                     .c = y,
                     .c_row = in_panels ? k_panel : width(),
                     .c_panel = in_panels ? rows * k_panel : k_panel,
                     .accumulate = false});
}

// A panel of dy holds 16 outputs, its rows 16 apart: dx is the sum of a product a panel.
void Dense::backward_input(const UnitMemory& memory, std::size_t rows, const float* dy, float* dx,
                           bool is_same) {
  const std::size_t width_in = padded(inputs_);
  for (std::size_t first = 0; first < outputs_; first += k_panel) {
    const std::size_t k = std::min(k_panel, outputs_ - first);
    float* block = transposed_.data() + first * width_in;
    for (std::size_t input = 0; !is_same && input < inputs_; ++input) {
      float* column = block + input / k_panel * k * k_panel + input % k_panel;
      for (std::size_t output = 0; output < k; ++output) {
        column[output * k_panel] = memory.weights[offset(input, first + output)];
      }
    }
    kernels_->product({.m = rows,
                       .k = k,
                       .panels = width_in / k_panel,
                       .a = dy + first * rows,
                       .a_row = k_panel,
                       .b = block,
                       .c = dx,
                       .c_row = k_panel,
                       .c_panel = rows * k_panel,
                       .accumulate = first > 0});
  }
}

void Dense::backward_weight(const UnitMemory& memory, std::size_t rows, const float* x,
                            std::size_t x_row, const float* dy, std::size_t first,
                            std::size_t count, bool accumulate) const {
  kernels_->product({.m = inputs_,
                     .k = rows,
                     .panels = count,
                     .a = x,
                     .a_row = 1,
                     .a_column = x_row,
                     .b = dy + first * rows * k_panel,
                     .c = memory.gradients + width() + first * inputs_ * k_panel,
                     .c_row = k_panel,
                     .c_panel = inputs_ * k_panel,
                     .accumulate = accumulate});
}

} // namespace trainer
