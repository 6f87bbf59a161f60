#include "trainer/nn/cpu/convolution.h"

#include <algorithm>
#include <cmath>

#include "trainer/random.h"

namespace trainer {
namespace {

constexpr std::size_t k_taps = 9;      // Taps of a 3 × 3 kernel.
constexpr std::size_t k_matrices = 16; // Matrices of Winograd's form.

} // namespace

Convolution::Convolution(const std::string& name, std::size_t channels, std::size_t rows,
                         const Pooling& pooling, TensorTable& tensors, const CpuKernels& kernels)
    : channels_(channels), pooling_(pooling), kernels_(kernels), unit_(tensors.begin_unit()),
      first_(tensors.arena_size()),
      input_((rows * grid().image() + 2 * grid().margin()) * channels),
      chosen_(rows * grid().pools() * pooling.channels) {
  tensors.add(name + ".bias", {pooling.channels});
  tensors.add(name + ".weight", {pooling.channels, 3, 3, channels}, Layout::panels);
}

void Convolution::initialize(std::uint64_t seed, std::uint32_t layer,
                             std::span<float> arena) const {
  const std::size_t outputs = pooling_.channels;
  const std::size_t inputs = k_taps * channels_;
  const float limit = std::sqrt(6.0F / static_cast<float>(inputs + k_taps * outputs));
  float* weight = arena.data() + first_ + outputs; // (O / 16, 9·C, 16)
  for (std::size_t input = 0; input < inputs; ++input) {
    for (std::size_t output = 0; output < outputs; ++output) {
      const auto bits = random_at(seed, RandomStream::weights, layer, input * outputs + output);
      weight[(output / k_panel * inputs + input) * k_panel + output % k_panel] =
          limit * (2 * uniform(bits[0]) - 1);
    }
  }
}

void Convolution::clear_bias_gradient(const UnitMemory& memory) const {
  std::fill_n(memory.gradients, pooling_.channels, 0.0F);
}

void FirstConvolution::forward(const UnitMemory& memory, std::size_t row, float* to) {
  kernels_.convolution.one_channel(pooling_, input(row), weight(memory), memory.weights, to,
                                   chosen(row));
}

void FirstConvolution::backward(const UnitMemory& memory, std::size_t row, const float* change,
                                bool accumulate) {
  kernels_.convolution.one_channel_backward(pooling_, input(row), chosen(row), change, accumulate,
                                            weight_gradient(memory), memory.gradients);
}

WinogradConvolution::WinogradConvolution(const std::string& name, std::size_t channels,
                                         std::size_t rows, const Pooling& pooling,
                                         TensorTable& tensors, const CpuKernels& kernels)
    : Convolution(name, channels, rows, pooling, tensors, kernels),
      image_plane_(grid().plane(channels)), output_plane_(grid().plane(outputs())),
      kernel_plane_(channels * outputs()), kernel_(k_matrices * kernel_plane_),
      turned_(k_taps * kernel_plane_), turned_kernel_(k_matrices * kernel_plane_),
      kernel_change_(k_matrices * kernel_plane_), image_(k_matrices * image_plane_),
      outputs_(k_matrices * output_plane_), image_change_(k_matrices * image_plane_),
      input_change_((grid().image() + 2 * grid().margin()) * channels) {}

void WinogradConvolution::take_parameters(const UnitMemory& memory) {
  const float* const weight = this->weight(memory);
  kernels_.convolution.kernel(outputs() / k_panel, channels_, weight, kernel_.data());
  for (std::size_t c = 0; c < channels_; ++c) {
    for (std::size_t tap = 0; tap < k_taps; ++tap) {
      for (std::size_t o = 0; o < outputs(); ++o) {
        turned_.data()[((c / k_panel * k_taps + tap) * outputs() + o) * k_panel + c % k_panel] =
            weight[((o / k_panel * k_taps + tap) * channels_ + c) * k_panel + o % k_panel];
      }
    }
  }
  kernels_.convolution.kernel(channels_ / k_panel, outputs(), turned_.data(),
                              turned_kernel_.data());
}

void WinogradConvolution::forward(const UnitMemory& memory, std::size_t row, float* to) {
  kernels_.convolution.image(grid(), channels_, input(row), image_.data());
  for (std::size_t i = 0; i < k_matrices; ++i) {
    kernels_.gemm({.m = grid().pools(),
                   .k = channels_,
                   .panels = outputs() / k_panel,
                   .a = image_.data() + i * image_plane_,
                   .a_row = channels_,
                   .b = kernel_.data() + i * kernel_plane_,
                   .c = outputs_.data() + i * output_plane_,
                   .c_row = outputs(),
                   .c_panel = k_panel}); // (T, O)
  }
  kernels_.convolution.pool(pooling_, outputs_.data(), memory.weights, to, chosen(row));
}

const float* WinogradConvolution::backward(const UnitMemory& memory, std::size_t row,
                                           const Pooling& change_lies, const float* change) {
  kernels_.convolution.image(grid(), channels_, input(row), image_.data());
  kernels_.convolution.pool_backward(change_lies, chosen(row), change, outputs_.data(),
                                     memory.gradients);
  for (std::size_t i = 0; i < k_matrices; ++i) {
    const float* const outputs_change = outputs_.data() + i * output_plane_;
    kernels_.gemm({.m = channels_,
                   .k = grid().pools(),
                   .panels = outputs() / k_panel,
                   .a = image_.data() + i * image_plane_,
                   .a_row = 1,
                   .a_column = channels_,
                   .b = outputs_change,
                   .c = kernel_change_.data() + i * kernel_plane_,
                   .c_row = k_panel,
                   .c_panel = channels_ * k_panel,
                   .accumulate = added_ > 0,
                   .b_row = outputs(),
                   .b_panel = k_panel}); // (C, O)
    kernels_.gemm({.m = grid().pools(),
                   .k = outputs(),
                   .panels = channels_ / k_panel,
                   .a = outputs_change,
                   .a_row = outputs(),
                   .b = turned_kernel_.data() + i * kernel_plane_,
                   .c = image_change_.data() + i * image_plane_,
                   .c_row = channels_,
                   .c_panel = k_panel}); // (T, C)
  }
  ++added_;
  std::fill_n(input_change_.data(), input_change_.size(), 0.0F);
  float* const first = input_change_.data() + grid().margin() * channels_;
  kernels_.convolution.image_backward(grid(), channels_, image_change_.data(), first);
  return first;
}

void WinogradConvolution::finish_backward(const UnitMemory& memory, bool accumulate) {
  kernels_.convolution.kernel_backward(outputs() / k_panel, channels_, kernel_change_.data(),
                                       accumulate, weight_gradient(memory));
  added_ = 0;
}

} // namespace trainer
