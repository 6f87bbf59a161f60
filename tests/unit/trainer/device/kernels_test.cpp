#include "trainer/device/cpu/kernels.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
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

/// Those that this machine runs.
std::vector<const CpuKernels*> vectorised() {
  std::vector<const CpuKernels*> sets;
  for (const CpuKernels* kernels : {avx2_kernels(), avx512_kernels()}) {
    if (kernels != nullptr) {
      sets.push_back(kernels);
    }
  }
  return sets;
}

/// What pools give, forward and backward, of images with an odd side.
std::vector<std::vector<float>> pools(const CpuKernels& kernels) {
  constexpr std::size_t rows = 2;
  constexpr std::size_t channels = 32;
  const PixelGrid grid{5, 4};
  const std::size_t pooled = grid.height / 2 * (grid.width / 2) * channels;
  const Pooling pooling{.rows = rows,
                        .channels = channels,
                        .grid = grid,
                        .to_row = pooled,
                        .to_y = grid.width / 2 * channels,
                        .to_x = channels,
                        .to_panel = k_panel};
  const std::vector<float> bias = numbers(channels, 9);
  std::vector<float> y = numbers(rows * grid.image() * channels, 10);
  y[channels + 3] = y[3]; // Of equal ones the first is chosen.
  std::vector<float> to(rows * pooled);
  std::vector<std::uint8_t> chosen(rows * pooled);
  kernels.max_pool_relu(pooling, y.data(), bias.data(), to.data(), chosen.data());
  const std::size_t plane = rows * grid.image() * k_panel;
  std::vector<float> dy(channels / k_panel * plane, 0.25F);
  std::vector<float> dbias(channels, 0.5F);
  kernels.max_pool_relu_backward(pooling, chosen.data(), numbers(rows * pooled, 11).data(),
                                 dy.data(), plane, dbias.data());
  return {to, {chosen.begin(), chosen.end()}, dy, dbias};
}

/// What activations, pools, loss and conversion give.
std::vector<std::vector<float>> all_but_product(const CpuKernels& kernels) {
  constexpr std::size_t rows = 9;
  constexpr std::size_t width = 48;
  const std::vector<float> bias = numbers(width, 3);
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
  const auto pooled = pools(kernels);
  return {pooled[0],
          pooled[1],
          pooled[2],
          pooled[3],
          y,
          dy,
          dbias,
          logits,
          dlogits_bias,
          floats,
          {static_cast<float>(score.loss), static_cast<float>(score.correct)}};
}

/// Parameters after three steps of each optimizer, and what gradients are clipped by.
std::vector<std::vector<float>> updated(const CpuKernels& kernels, std::size_t n = 1003) {
  const std::vector<float> gradient = numbers(n, 7);
  std::vector<std::vector<float>> p(4, numbers(n, 8));
  std::vector<std::vector<float>> m(6, std::vector<float>(n));
  UpdateRule rule;
  rule.l2 = 0.01F;
  rule.decay = 0.01F;
  rule.learning_rate = 0.1F;
  for (int t = 1; t < 4; ++t) {
    rule.step_size = 1e-3F / static_cast<float>(1 - std::pow(0.9, t));
    rule.inverse_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, t)));
    kernels.sgd(*stream, n, rule, gradient.data(), m[0].data(), p[0].data());
    kernels.adam(*stream, n, rule, gradient.data(), m[1].data(), m[2].data(), p[1].data());
    kernels.lamb(*stream, n, rule, gradient.data(), m[3].data(), m[4].data(), m[5].data(),
                 p[2].data());
  }
  p[3].resize(2);
  kernels.clip_factor(*stream, n, gradient.data(), 1.0F, &p[3][0], &p[3][1]);
  return p;
}

} // namespace

TEST_CASE("the vectorised product equals the plain one at every shape") {
  for (const std::size_t m : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 64, 65}) {
    for (const std::size_t k : {1, 10, 63, 64, 65, 130}) {
      for (const int mode : {0, 1, 2, 3}) {
        const bool transposed = mode % 2 == 1;
        const bool accumulate = mode >= 2;
        CAPTURE(m);
        CAPTURE(k);
        CAPTURE(transposed);
        const auto plain = product(portable_kernels(), m, k, transposed, accumulate);
        for (const CpuKernels* fast : vectorised()) {
          check_close(product(*fast, m, k, transposed, accumulate), plain, 1e-4F);
        }
      }
    }
  }
}

TEST_CASE("the vectorised activations, loss and conversion equal the plain ones") {
  const auto plain = all_but_product(portable_kernels());
  for (const CpuKernels* fast : vectorised()) {
    const auto found = all_but_product(*fast);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      check_close(plain[i], found[i], 1e-5F);
    }
  }
}

TEST_CASE("kernels of the same arithmetic give the same bits") {
  const auto sets = vectorised();
  for (std::size_t i = 1; i < sets.size(); ++i) {
    CHECK(std::string(sets[i]->arithmetic) == sets[0]->arithmetic);
    CHECK(all_but_product(*sets[i]) == all_but_product(*sets[0]));
    for (const bool transposed : {false, true}) {
      CHECK(product(*sets[i], 65, 130, transposed, true) ==
            product(*sets[0], 65, 130, transposed, true));
    }
    for (const std::size_t n : {16, 24, 1000, 1003}) {
      CHECK(updated(*sets[i], n) == updated(*sets[0], n));
    }
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

TEST_CASE("the vectorised optimizers equal the plain ones") {
  const auto plain = updated(portable_kernels());
  for (const CpuKernels* fast : vectorised()) {
    const auto found = updated(*fast);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      check_close(plain[i], found[i], 1e-6F);
    }
  }
}

TEST_CASE("Philox gives its authors' known answers") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  const std::uint32_t ones = 0xFFFFFFFF;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
        std::array<std::uint32_t, 4>{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
}
