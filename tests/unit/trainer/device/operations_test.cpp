// Every operation on each set of the CPU's kernels beside float64, and the gradients among those
// loops beside finite differences.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "tests/unit/trainer/device/gelu.h"
#include "tests/unit/trainer/device/operations/oracles.h"
#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;
using namespace trainer::test;

namespace {

Doubles some(std::size_t count, std::uint32_t salt) {
  const Values values = numbers(count, salt);
  return {values.begin(), values.end()};
}

double along(const Doubles& values, const Doubles& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i] * weights[i];
  }
  return sum;
}

/// `gradient` is that of loss() at `values`, which it reads.
void check_slopes(Doubles& values, const Doubles& gradient, const std::function<double()>& loss) {
  constexpr double k_step = 1e-5;
  REQUIRE(gradient.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    values[i] = value + k_step;
    const double above = loss();
    values[i] = value - k_step;
    const double below = loss();
    values[i] = value;
    CAPTURE(i);
    CHECK(gradient[i] == doctest::Approx((above - below) / (2 * k_step)).epsilon(1e-6));
  }
}

} // namespace

TEST_CASE("every operation is float64's on each set of CPU kernels, whatever its shape") {
  for (const CpuKernels* kernels : {&portable_kernels(), avx2_kernels(), avx512_kernels()}) {
    if (kernels != nullptr) {
      INFO(std::string(kernels->name));
      CpuDevice device(*kernels);
      check_operations(device);
    }
  }
}

TEST_CASE("the gradients that operations are held to agree with finite differences") {
  SUBCASE("cross-entropy") {
    Doubles logits = some(7, 1);
    check_slopes(logits, cross_entropy(logits, 2).change,
                 [&] { return cross_entropy(logits, 2).loss; });
  }
  SUBCASE("a dense layer") {
    const DenseShape shape{3, 5, 4};
    Doubles x = some(15, 1), weight = some(20, 2), bias = some(4, 3);
    const Doubles dy = some(12, 4);
    const DenseGradients found = dense_gradients(shape, x, weight, dy);
    const auto loss = [&] { return along(dense(shape, x, weight, bias), dy); };
    check_slopes(x, found.dx, loss);
    check_slopes(weight, found.dweight, loss);
    check_slopes(bias, found.dbias, loss);
  }
  SUBCASE("a convolution and its pool") {
    const ConvolutionShape shape{2, 5, 4, 3, 2};
    Doubles x = some(120, 1), weight = some(54, 2), bias = some(2, 3);
    const Doubles dy = some(2 * shape.pools() * 2, 4);
    const Convolved of = convolve(shape, x, weight, bias);
    const DenseGradients found = convolution_gradients(shape, x, weight, dy, of.chosen);
    const auto loss = [&] { return along(convolve(shape, x, weight, bias).y, dy); };
    check_slopes(x, found.dx, loss);
    check_slopes(weight, found.dweight, loss);
    check_slopes(bias, found.dbias, loss);
  }
  SUBCASE("a norm") {
    const NormShape shape{3, 7, 1e-5F};
    Doubles x = some(21, 1), gain = some(7, 2), shift = some(7, 3);
    const Doubles dy = some(21, 4);
    const NormGradients found = norm_gradients(shape, x, gain, dy);
    const auto loss = [&] { return along(norm(shape, x, gain, shift).y, dy); };
    check_slopes(x, found.dx, loss);
    check_slopes(gain, found.dgain, loss);
    check_slopes(shift, found.dshift, loss);
  }
  SUBCASE("gelu") {
    for (const double x : {-4.0, -1.0, -0.1, 0.0, 0.3, 2.0, 5.0}) {
      Doubles at = {x};
      check_slopes(at, {gelu_slope_at(x)}, [&] { return at[0] * phi(at[0]); });
    }
  }
  for (const bool is_causal : {false, true}) {
    for (const bool drops : {false, true}) {
      CAPTURE(is_causal);
      CAPTURE(drops);
      AttentionInputs in{.shape = {2, 5, 2, 3, is_causal}, .lengths = {5, 3}};
      for (std::uint16_t i = 0; drops && i < in.shape.lines(); ++i) {
        in.keep.push_back(static_cast<std::uint16_t>(0x2D5B * (i + 1)));
      }
      Doubles query = some(60, 1), key = some(60, 2), value = some(60, 3);
      const Doubles change = some(60, 4);
      const AttentionGradients found = attention_gradients(in, query, key, value, change);
      const auto loss = [&] { return along(attention(in, query, key, value), change); };
      check_slopes(query, found.dquery, loss);
      check_slopes(key, found.dkey, loss);
      check_slopes(value, found.dvalue, loss);
    }
  }
}
