// Convolutions on a GPU, its source run on the CPU, against the CPU's.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/unit/cuda/alike.h"
#include "tests/unit/variable.h"

using namespace trainer;
using namespace trainer::test;

namespace {

struct Convolved {
  Values y, dweight, dbias, dx;
  std::vector<std::uint8_t> chosen;
};

Convolved convolve(Device& device, const ConvolutionShape& s, Values x, bool accumulate,
                   Values (*make)(std::size_t, std::uint32_t) = numbers) {
  const LayerKernels& kernels = *device.kernels().layers;
  const std::size_t pooled = s.images * s.pools() * s.outputs;
  const float before = accumulate ? 0.25F : NAN;
  On<float> on_x(device, std::move(x));
  On<float> weight(device, make(s.outputs * 9 * s.channels, 2));
  On<float> bias(device, make(s.outputs, 3));
  On<float> y(device, Values(pooled, NAN));
  On<float> dy(device, make(pooled, 4));
  On<std::uint8_t> chosen(device, std::vector<std::uint8_t>(pooled, 77));
  On<float> room(device, Values(s.room(), NAN));
  On<float> dweight(device, Values(s.outputs * 9 * s.channels, before));
  On<float> dbias(device, Values(s.outputs, before));
  On<float> dx(device, Values(s.images * s.height * s.width * s.channels, NAN));
  Stream& stream = device.stream();
  kernels.convolution(stream, s, on_x.data(), weight.data(), bias.data(), y.data(), chosen.data());
  kernels.convolution_backward_weight(stream, s, on_x.data(), dy.data(), chosen.data(), accumulate,
                                      room.data(), dweight.data(), dbias.data());
  kernels.convolution_backward_input(stream, s, dy.data(), chosen.data(), weight.data(), dx.data());
  return {y.read(), dweight.read(), dbias.read(), dx.read(), chosen.read()};
}

/// That TF32 has, and that float32 adds up exactly.
Values coarse_numbers(std::size_t count, std::uint32_t salt) {
  constexpr float k_unit = 1.0F / 64;
  Values values = numbers(count, salt);
  for (float& value : values) {
    value = std::round(value / k_unit) * k_unit;
  }
  return values;
}

void check_close(const Values& found, const Values& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(found[i] - expected[i]) <= 2e-5F * (1 + std::abs(expected[i])))) {
      CAPTURE(i);
      REQUIRE(found[i] == expected[i]);
    }
  }
}

} // namespace

TEST_CASE("a convolution of high precision on a GPU rounds to TF32, and nothing else") {
  const unit::Variable with_blas("DTRAIN_FAKE_BLAS", "1"); // Without it a GPU has no TF32.
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  if (!gpu.set_matmul_precision(MatmulPrecision::high)) {
    return;
  }
  for (const ConvolutionShape& s :
       {ConvolutionShape{3, 7, 9, 8, 36}, ConvolutionShape{5, 14, 14, 32, 64},
        ConvolutionShape{1, 5, 3, 68, 100}, ConvolutionShape{1, 5, 3, 7, 6}}) {
    CAPTURE(s.height);
    CAPTURE(s.outputs);
    CpuDevice cpu(portable_kernels());
    const std::size_t count = s.images * s.height * s.width * s.channels;
    const Values x = coarse_numbers(count, 1);
    const Convolved expected = convolve(cpu, s, x, false, coarse_numbers);
    const Convolved found = convolve(gpu, s, x, false, coarse_numbers);
    CHECK(found.chosen == expected.chosen);
    check_close(found.y, expected.y);
    check_close(found.dweight, expected.dweight);
    check_close(found.dbias, expected.dbias);
    check_close(found.dx, expected.dx);
  }
  const ConvolutionShape s{2, 4, 4, 8, 8};
  const Values x = numbers(std::size_t{2} * 4 * 4 * 8, 1);
  const Values rounded = convolve(gpu, s, x, false).y;
  gpu.set_matmul_precision(MatmulPrecision::highest);
  const Values exact = convolve(gpu, s, x, false).y;
  CHECK(rounded != exact);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(rounded[i] == doctest::Approx(exact[i]).epsilon(0.01));
  }
}

TEST_CASE("a convolution on a GPU stays float32's where products are FP8's") {
  const unit::Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const ConvolutionShape s{2, 4, 4, 8, 8};
  const Values x = numbers(std::size_t{2} * 4 * 4 * 8, 1);
  const Values exact = convolve(gpu, s, x, false).y;
  gpu.multiply_in(DType::bf16);
  if (gpu.set_matmul_precision(MatmulPrecision::fp8)) {
    CHECK(convolve(gpu, s, x, false).y == exact);
  }
}

TEST_CASE("a pool on a GPU keeps a NaN") {
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  CHECK(std::isnan(convolve(gpu, {1, 2, 2, 1, 1}, {NAN, 0, 0, 0}, false).y[0]));
  Values x(std::size_t{2} * 2 * 8);
  x[5] = NAN;
  for (const float y : convolve(gpu, {1, 2, 2, 8, 4}, x, false).y) {
    CHECK(std::isnan(y));
  }
}
