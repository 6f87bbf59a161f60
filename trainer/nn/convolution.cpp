#include "trainer/nn/convolution.h"

#include <algorithm>
#include <cmath>

#include "trainer/random.h"

namespace trainer {
namespace {

constexpr std::size_t k_side = 3; ///< Of a kernel, in pixels.
constexpr std::size_t k_taps = k_side * k_side;

} // namespace

Convolution::Convolution(const std::string& name, std::size_t channels, std::size_t outputs,
                         const PixelGrid& grid, std::size_t rows, TensorTable& tensors,
                         const CpuKernels& kernels)
    : channels_(channels), outputs_(outputs), grid_(grid), kernels_(&kernels),
      first_(tensors.arena_size()), plane_((rows * grid.image() + 2 * grid.margin()) * k_panel),
      input_((rows * grid.image() + 2 * grid.margin()) * channels),
      outputs_before_pool_(rows * grid.image() * outputs), changes_(outputs / k_panel * plane_),
      chosen_(rows * (grid.height / 2) * (grid.width / 2) * outputs) {
  tensors.add(name + ".bias", {outputs});
  tensors.add(name + ".weight", {outputs, k_side, k_side, channels}, Layout::panels);
  last_ = tensors.arena_size();
}

void Convolution::bind(std::span<float> parameters, std::span<float> gradients) {
  parameters_ = parameters.data() + first_;
  gradients_ = gradients.data() + first_;
}

void Convolution::initialize(std::uint64_t seed, std::uint32_t layer) {
  const std::size_t inputs = k_taps * channels_;
  const float limit = std::sqrt(6.0F / static_cast<float>(inputs + k_taps * outputs_));
  float* weight = parameters_ + outputs_; // (O / 16, 9·C, 16)
  for (std::size_t input = 0; input < inputs; ++input) {
    for (std::size_t output = 0; output < outputs_; ++output) {
      const auto bits = random_at(seed, RandomStream::weights, layer, input * outputs_ + output);
      weight[(output / k_panel * inputs + input) * k_panel + output % k_panel] =
          limit * (2 * uniform(bits[0]) - 1);
    }
  }
}

void Convolution::clear_bias_gradient() { std::fill_n(gradients_, outputs_, 0.0F); }

Pooling Convolution::with_own(const Pooling& pooling) const {
  Pooling own = pooling;
  own.channels = outputs_;
  own.grid = grid_;
  return own;
}

void Convolution::forward(const Pooling& pooling, float* to) {
  const std::size_t k = k_side * channels_; // One row of a kernel.
  for (std::size_t y = 0; y < k_side; ++y) {
    kernels_->gemm({.m = pixels(pooling.rows),
                    .k = k,
                    .panels = outputs_ / k_panel,
                    .a = input_.data() + y * grid_.pitch() * channels_,
                    .a_row = channels_,
                    .b = parameters_ + outputs_ + y * k * k_panel,
                    .c = outputs_before_pool_.data(),
                    .c_row = outputs_,
                    .c_panel = k_panel,
                    .accumulate = y > 0,
                    .b_panel = k_side * k * k_panel}); // (P, O)
  }
  kernels_->max_pool_relu(with_own(pooling), outputs_before_pool_.data(), parameters_, to,
                          chosen_.data());
}

void Convolution::backward(const Pooling& pooling, const float* change, bool accumulate) {
  kernels_->max_pool_relu_backward(with_own(pooling), chosen_.data(), change,
                                   changes_.data() + grid_.margin() * k_panel, plane_, gradients_);
  const std::size_t k = k_side * channels_;
  for (std::size_t y = 0; y < k_side; ++y) {
    kernels_->gemm({.m = k,
                    .k = pixels(pooling.rows),
                    .panels = outputs_ / k_panel,
                    .a = input_.data() + y * grid_.pitch() * channels_,
                    .a_row = 1,
                    .a_column = channels_,
                    .b = changes_.data() + grid_.margin() * k_panel,
                    .c = gradients_ + outputs_ + y * k * k_panel,
                    .c_row = k_panel,
                    .c_panel = k_side * k * k_panel,
                    .accumulate = accumulate,
                    .b_panel = plane_}); // (3·C, O)
  }
}

// What a pixel gave to its neighbours comes back from them: a convolution of the gradient with the
// kernel turned by 180°.
const float* Convolution::backward_input(std::size_t rows, bool is_same) {
  const std::size_t k = k_side * k_panel;
  if (turned_.size() == 0) {
    turned_ = Buffer(outputs_ * k_taps * channels_);
    input_changes_ = Buffer(input_.size());
    is_same = false;
  }
  float* to = turned_.data();
  for (std::size_t panel = 0; panel < outputs_ / k_panel; ++panel) {
    for (std::size_t y = 0; y < k_side; ++y) {
      float* const b = to;
      for (std::size_t first = 0; first < channels_; first += k_panel) {
        for (std::size_t x = 0; !is_same && x < k_side; ++x) {
          const std::size_t tap = (k_side - 1 - y) * k_side + (k_side - 1 - x);
          const float* weight =
              parameters_ + outputs_ + ((panel * k_taps + tap) * channels_ + first) * k_panel;
          for (std::size_t output = 0; output < k_panel; ++output) {
            for (std::size_t c = 0; c < k_panel; ++c) {
              to[(x * k_panel + output) * k_panel + c] = weight[c * k_panel + output];
            }
          }
        }
        to += k * k_panel;
      }
      kernels_->gemm({.m = pixels(rows),
                      .k = k,
                      .panels = channels_ / k_panel,
                      .a = changes_.data() + panel * plane_ + y * grid_.pitch() * k_panel,
                      .a_row = k_panel,
                      .b = b,
                      .c = input_changes_.data(),
                      .c_row = channels_,
                      .c_panel = k_panel,
                      .accumulate = panel > 0 || y > 0}); // (P, C)
    }
  }
  return input_changes_.data();
}

} // namespace trainer
