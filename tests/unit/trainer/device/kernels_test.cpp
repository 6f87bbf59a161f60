#include "trainer/device/cpu/kernels.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/random.h"

using namespace trainer;

namespace {

const std::unique_ptr<Stream> stream = CpuDevice().make_stream();

std::vector<float> numbers(std::size_t count, std::uint32_t salt) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 2 * uniform(random_at(1, RandomStream::weights, salt, i)[0]) - 1;
  }
  return values;
}

void check_close(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  REQUIRE(a.size() == b.size());
  float worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  CHECK(worst <= tolerance);
}

/// C of one kernel set, for A (m, k) row-major or transposed.
std::vector<float> product(const CpuKernels& kernels, std::size_t m, std::size_t k, bool transposed,
                           bool accumulate) {
  constexpr std::size_t k_panels = 3;
  const std::vector<float> a = numbers(m * k, 1);
  const std::vector<float> b = numbers(k_panels * k * k_panel, 2);
  std::vector<float> c(k_panels * m * k_panel, accumulate ? 0.25F : NAN);
  kernels.gemm({m, k, k_panels, a.data(), transposed ? 1 : k, transposed ? m : 1, b.data(),
                c.data(), k_panels * k_panel, k_panel, accumulate});
  return c;
}

} // namespace

TEST_CASE("the vectorised product equals the plain one at every shape") {
  const CpuKernels* fast = avx2_kernels();
  if (fast == nullptr) {
    return;
  }
  for (const std::size_t m : {1, 2, 3, 4, 5, 6, 7, 64, 65}) {
    for (const std::size_t k : {1, 10, 63, 64, 65, 130}) {
      for (const int mode : {0, 1, 2, 3}) {
        const bool transposed = mode % 2 == 1;
        const bool accumulate = mode >= 2;
        CAPTURE(m);
        CAPTURE(k);
        CAPTURE(transposed);
        check_close(product(*fast, m, k, transposed, accumulate),
                    product(portable_kernels(), m, k, transposed, accumulate), 1e-4F);
      }
    }
  }
}

TEST_CASE("the vectorised activations, loss and conversion equal the plain ones") {
  const CpuKernels* fast = avx2_kernels();
  if (fast == nullptr) {
    return;
  }
  constexpr std::size_t rows = 9;
  constexpr std::size_t width = 48;
  const std::vector<float> bias = numbers(width, 3);
  std::vector<std::vector<float>> results[2];
  for (int set = 0; set < 2; ++set) {
    const CpuKernels& kernels = set == 0 ? portable_kernels() : *fast;
    std::vector<float> y = numbers(rows * width, 4);
    kernels.bias_relu(rows, width, bias.data(), y.data());
    std::vector<float> dy = numbers(rows * width, 5);
    std::vector<float> dbias(width, 0.5F);
    kernels.relu_backward(rows, width, y.data(), dy.data(), dbias.data());
    std::vector<float> logits = numbers(rows * k_panel, 6);
    std::vector<float> dlogits_bias(k_panel, 0.5F);
    const std::vector<std::uint8_t> labels = {0, 1, 2, 3, 4, 5, 6, 7, 9};
    const Score score = kernels.softmax_cross_entropy(rows, 10, labels.data(), bias.data(), 0.1F,
                                                      logits.data(), dlogits_bias.data());
    std::vector<std::uint8_t> bytes(259);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(i);
    }
    std::vector<float> floats(bytes.size());
    kernels.bytes_to_floats(*stream, bytes.size(), bytes.data(), floats.data());
    results[set] = {y,
                    dy,
                    dbias,
                    logits,
                    dlogits_bias,
                    floats,
                    {static_cast<float>(score.loss), static_cast<float>(score.correct)}};
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    CAPTURE(i);
    check_close(results[0][i], results[1][i], 1e-5F);
  }
}

TEST_CASE("what is no number stays none behind an activation") {
  for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
    std::vector<float> y(k_panel, 1.0F);
    y[3] = NAN;
    kernels->bias_relu(1, k_panel, std::vector<float>(k_panel).data(), y.data());
    CHECK(std::isnan(y[3]));
    CHECK(y[4] == 1.0F);
  }
}

TEST_CASE("the loss over many classes is that over one panel, cut into panels") {
  constexpr std::size_t rows = 3;
  constexpr std::size_t classes = 37;
  const std::vector<std::uint8_t> labels = {0, 20, 36};
  const std::vector<float> bias = numbers(padded(classes), 3);
  std::vector<float> logits = numbers(rows * padded(classes), 6);
  const std::vector<float> before = logits;
  std::vector<float> dbias(padded(classes));
  const Score score = best_kernels().softmax_cross_entropy(
      rows, classes, labels.data(), bias.data(), 1, logits.data(), dbias.data());
  const auto at = [](std::size_t row, std::size_t c) {
    return (c / k_panel * rows + row) * k_panel + c % k_panel;
  };
  double loss = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      sum += std::exp(double{before[at(row, c)]} + double{bias[c]});
    }
    loss += std::log(sum) - before[at(row, labels[row])] - bias[labels[row]];
    for (std::size_t c = 0; c < padded(classes); ++c) {
      const double share = std::exp(double{before[at(row, c)]} + double{bias[c]}) / sum;
      const double expected = c >= classes ? 0 : share - (c == labels[row] ? 1 : 0);
      CHECK(logits[at(row, c)] == doctest::Approx(expected).epsilon(1e-5));
    }
  }
  CHECK(score.loss == doctest::Approx(loss));
}

TEST_CASE("bytes become floats from 0 to 1") {
  const std::uint8_t bytes[] = {0, 51, 255};
  float floats[3];
  best_kernels().bytes_to_floats(*stream, 3, bytes, floats);
  CHECK(floats[0] == 0.0F);
  CHECK(floats[1] == doctest::Approx(0.2));
  CHECK(floats[2] == doctest::Approx(1.0));
}

TEST_CASE("the vectorised Adam equals the plain one") {
  const CpuKernels* fast = avx2_kernels();
  if (fast == nullptr) {
    return;
  }
  constexpr std::size_t n = 1003;
  const std::vector<float> gradient = numbers(n, 7);
  std::vector<float> p[2];
  for (int set = 0; set < 2; ++set) {
    const CpuKernels& kernels = set == 0 ? portable_kernels() : *fast;
    p[set] = numbers(n, 8);
    std::vector<float> m(n);
    std::vector<float> v(n);
    UpdateRule adam;
    for (int t = 1; t < 4; ++t) {
      adam.step_size = 1e-3F / static_cast<float>(1 - std::pow(0.9, t));
      adam.inverse_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, t)));
      kernels.adam(*stream, n, adam, gradient.data(), m.data(), v.data(), p[set].data());
    }
  }
  check_close(p[0], p[1], 1e-6F);
}

TEST_CASE("Philox gives its authors' known answers") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  const std::uint32_t ones = 0xFFFFFFFF;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
        std::array<std::uint32_t, 4>{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
}
