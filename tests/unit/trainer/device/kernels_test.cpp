#include "trainer/device/cpu/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/trainer/device/on_device.h"
#include "tests/unit/trainer/largest_difference.h"
#include "trainer/device/cpu/bf16_products.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/halves.h"
#include "trainer/random.h"

using namespace trainer;
using trainer::test::numbers;

namespace {

const std::unique_ptr<Stream> stream = CpuDevice().make_stream();

void check_close(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  CHECK(test::largest_difference(a, b) <= tolerance);
}

constexpr std::size_t k_panels = 3;

/// C of one product, for A (m, k) row-major or transposed, of numbers or of what `of` makes of
/// them.
std::vector<float> product_by(void (*gemm)(const Gemm&), std::size_t m, std::size_t k,
                              bool transposed, bool accumulate, float (*of)(float) = nullptr) {
  std::vector<float> a = numbers(m * k, 1);
  std::vector<float> b = numbers(k_panels * k * k_panel, 2);
  for (auto* values : {&a, &b}) {
    for (float& value : *values) {
      value = of == nullptr ? value : of(value);
    }
  }
  std::vector<float> c(k_panels * m * k_panel, accumulate ? 0.25F : NAN);
  gemm({m, k, k_panels, a.data(), transposed ? 1 : k, transposed ? m : 1, b.data(), c.data(),
        k_panels * k_panel, k_panel, accumulate});
  return c;
}

std::vector<float> product(const CpuKernels& kernels, std::size_t m, std::size_t k, bool transposed,
                           bool accumulate) {
  return product_by(kernels.gemm, m, k, transposed, accumulate);
}

float in_bf16(float value) { return Bf16::widen(Bf16::narrow(value)); }

/// What TDPBF16PS adds up, in its order: of 16 pairs along k the first values' products and the
/// second values' apart, both together, and that to what there is.
void add_as_amx(const Gemm& g) {
  constexpr std::size_t k_deep = 32;
  const auto rounded = [](const float* from) { return in_bf16(*from); };
  for (std::size_t i = 0; i < g.m * g.panels * k_panel; ++i) {
    const std::size_t row = i / k_panel % g.m;
    const std::size_t panel = i / k_panel / g.m;
    const float* const a = g.a + row * g.a_row;
    const float* const b = g.b + panel * g.k * k_panel + i % k_panel;
    float& c = g.c[panel * g.c_panel + row * g.c_row + i % k_panel];
    c = g.accumulate ? c : 0;
    for (std::size_t first = 0; first < g.k; first += k_deep) {
      float sums[2] = {0, 0};
      for (std::size_t k = first; k < std::min(first + k_deep, g.k); ++k) {
        sums[k % 2] = std::fma(rounded(a + k * g.a_column), rounded(b + k * k_panel), sums[k % 2]);
      }
      c += sums[0] + sums[1];
    }
  }
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

/// What a convolution's kernels give, forward and backward, of an image with an odd side.
std::vector<std::vector<float>> convolved(const CpuKernels& kernels) {
  constexpr std::size_t channels = 48;
  const ConvolutionKernels& k = kernels.convolution;
  const PixelGrid grid{5, 6};
  const Pooling pooling{
      .grid = grid, .channels = channels, .to_y = grid.width / 2 * channels, .to_x = channels};
  const std::size_t pools = grid.pools() * channels;
  const std::size_t pixels = grid.image() + 2 * grid.margin();
  const std::vector<float> weight = numbers(9 * 32 * channels, 9);
  std::vector<float> kernel(16 * 32 * channels);
  k.kernel(channels / k_panel, 32, weight.data(), kernel.data());
  std::vector<float> gradient = numbers(weight.size(), 10);
  k.kernel_backward(channels / k_panel, 32, kernel.data(), true, gradient.data());

  const std::vector<float> image = numbers(pixels * channels, 11);
  std::vector<float> tiles(16 * grid.plane(channels));
  k.image(grid, channels, image.data() + grid.margin() * channels, tiles.data());
  std::vector<float> image_change = numbers(image.size(), 12);
  k.image_backward(grid, channels, tiles.data(), image_change.data() + grid.margin() * channels);

  const std::vector<float> bias = numbers(channels, 13);
  std::vector<float> to(pools);
  std::vector<std::uint8_t> chosen(pools);
  k.pool(pooling, tiles.data(), bias.data(), to.data(), chosen.data());
  const std::vector<float> change = numbers(pools, 14);
  std::vector<float> tiles_change(tiles.size());
  std::vector<float> dbias(channels, 0.5F);
  k.pool_backward(pooling, chosen.data(), change.data(), tiles_change.data(), dbias.data());
  std::vector<std::vector<float>> all = {kernel,       gradient, tiles,
                                         image_change, to,       {chosen.begin(), chosen.end()},
                                         tiles_change, dbias};

  const float* one = image.data() + grid.margin();
  k.one_channel(pooling, one, weight.data(), bias.data(), to.data(), chosen.data());
  std::vector<float> one_gradient(9 * channels);
  for (const bool accumulate : {false, true}) {
    k.one_channel_backward(pooling, one, chosen.data(), change.data(), accumulate,
                           one_gradient.data(), dbias.data());
  }
  all.insert(all.end(), {to, {chosen.begin(), chosen.end()}, one_gradient, dbias});
  return all;
}

/// What activations, convolutions, loss and conversion give.
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
  const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 5, 6, 7, 9};
  const Score score = kernels.softmax_cross_entropy(rows, 10, labels.data(), bias.data(), 0.1F,
                                                    logits.data(), dlogits_bias.data());
  std::vector<std::uint8_t> bytes(259);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(i);
  }
  std::vector<float> floats(bytes.size());
  kernels.bytes_to_floats(*stream, bytes.size(), bytes.data(), floats.data());
  std::vector<std::vector<float>> all = convolved(kernels);
  all.insert(all.end(), {y,
                         dy,
                         dbias,
                         logits,
                         dlogits_bias,
                         floats,
                         {static_cast<float>(score.loss), static_cast<float>(score.correct)}});
  return all;
}

/// Parameters after three steps of each optimizer, and what gradients are clipped by.
std::vector<std::vector<float>> updated(const CpuKernels& kernels, std::size_t n = 1003) {
  const std::vector<float> gradient = numbers(n, 7);
  std::vector<std::vector<float>> p(4, numbers(n, 8));
  std::vector<std::vector<float>> m(6, std::vector<float>(n));
  const UpdateRule rule{.l2 = 0.01F, .decay = 0.01};
  const StepRule step{.clip_norm = 1};
  StepState state;
  for (int t = 1; t < 4; ++t) {
    kernels.begin(*stream, step, {.step = t, .learning_rate = {1e-3}}, &state, nullptr);
    kernels.sgd(*stream, n, rule, &state, gradient.data(), m[0].data(), p[0].data());
    kernels.adam(*stream, n, rule, &state, gradient.data(), m[1].data(), m[2].data(), p[1].data());
    kernels.lamb_direction(*stream, n, rule, &state, gradient.data(), m[3].data(), m[4].data(),
                           m[5].data(), p[2].data());
    kernels.lamb_take(*stream, n, &state, m[5].data(), p[2].data());
  }
  SquareSum squares;
  kernels.squares(*stream, n, gradient.data(), 0, &squares);
  kernels.prepare(*stream, step, &squares, &state, nullptr);
  p[3] = {state.norm, state.factor};
  return p;
}

} // namespace

TEST_CASE("optimizers write what they update in bf16 too, where that is asked for") {
  std::vector<const CpuKernels*> all = vectorised();
  all.push_back(&portable_kernels());
  constexpr std::size_t k_count = 103;
  const std::vector<float> gradient = numbers(k_count, 7);
  const UpdateRule rule{.l2 = 0.01F, .decay = 0.01};
  StepState state;
  state.step_size = 0.1F;
  state.learning_rate = 0.1;
  for (const CpuKernels* kernels : all) {
    for (const int number : {0, 1, 2, 3}) {
      std::vector<float> p = numbers(k_count, 8);
      std::vector<std::vector<float>> m(3, std::vector<float>(k_count, 0.5F));
      std::vector<Bf16Value> rounded(k_count);
      const Parameters to(p.data(), rounded.data());
      float* const u = m[2].data();
      number == 0   ? kernels->sgd(*stream, k_count, rule, &state, gradient.data(), m[0].data(), to)
      : number == 1 ? kernels->adam(*stream, k_count, rule, &state, gradient.data(), m[0].data(),
                                    m[1].data(), to)
      : number == 2 ? kernels->lamb_take(*stream, k_count, &state, u, to)
                    : kernels->muon_take(*stream, k_count, rule, &state, 0.5F, u, to);
      CHECK(p != numbers(k_count, 8));
      for (std::size_t i = 0; i < k_count; ++i) {
        CHECK(rounded[i].bits == Bf16::narrow(p[i]));
      }
    }
  }
}

TEST_CASE("a gradient's norm that is no number, or infinite, reaches no parameter") {
  std::vector<const CpuKernels*> all = vectorised();
  all.push_back(&portable_kernels());
  constexpr std::size_t k_count = 100;
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const CpuKernels* kernels : all) {
      std::vector<float> gradient = numbers(k_count, 7);
      gradient[50] = wrong;
      const StepRule step{.clip_norm = 1};
      StepState state;
      SquareSum squares;
      kernels->begin(*stream, step, {.learning_rate = {0.1}}, &state, nullptr);
      kernels->squares(*stream, k_count, gradient.data(), 1000, &squares);
      kernels->prepare(*stream, step, &squares, &state, nullptr);
      CHECK(!std::isfinite(state.norm));
      CHECK(state.skipped == 1);
      CHECK(state.not_finite == 1050);
      const UpdateRule rule;
      const std::vector<float> before = numbers(k_count, 8);
      std::vector<std::vector<float>> p(3, before);
      std::vector<std::vector<float>> m(6, std::vector<float>(k_count));
      kernels->sgd(*stream, k_count, rule, &state, gradient.data(), m[0].data(), p[0].data());
      kernels->adam(*stream, k_count, rule, &state, gradient.data(), m[1].data(), m[2].data(),
                    p[1].data());
      kernels->lamb_direction(*stream, k_count, rule, &state, gradient.data(), m[3].data(),
                              m[4].data(), m[5].data(), p[2].data());
      kernels->lamb_take(*stream, k_count, &state, gradient.data(), p[2].data());
      for (const std::vector<float>& parameters : p) {
        CHECK(parameters == before);
      }
      for (std::size_t i = 0; i < 5; ++i) {
        CHECK(m[i] == std::vector<float>(k_count));
      }
    }
  }
}

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

TEST_CASE("a product in bf16 is that of rounded values, with the same bits by its instructions") {
  for (const std::size_t m : {1, 5, 12, 13, 25, 32, 65}) {
    for (const std::size_t k : {1, 2, 31, 33, 64, 130, 515}) {
      for (const int mode : {0, 1, 2, 3}) {
        const bool transposed = mode % 2 == 1;
        const bool accumulate = mode >= 2;
        CAPTURE(m);
        CAPTURE(k);
        CAPTURE(transposed);
        const auto exact =
            product_by(portable_kernels().gemm, m, k, transposed, accumulate, in_bf16);
        const auto by = [&](const CpuKernels& kernels) {
          return product_by(kernels.gemm_bf16, m, k, transposed, accumulate);
        };
        check_close(by(portable_kernels()), exact, 1e-4F);
        for (const CpuKernels* fast : vectorised()) {
          check_close(by(*fast), exact, 1e-4F);
          CHECK(by(*fast) == by(*vectorised().front()));
        }
        if (avx512_bf16() != nullptr && !vectorised().empty()) {
          CHECK(product_by(gemm_by_avx512_bf16, m, k, transposed, accumulate) ==
                by(*vectorised().front()));
        }
        if (amx_bf16() != nullptr) {
          CHECK(product_by(gemm_by_amx_bf16, m, k, transposed, accumulate) ==
                product_by(add_as_amx, m, k, transposed, accumulate));
        }
      }
    }
  }
}

TEST_CASE("a product in bf16 keeps what is infinite or no number") {
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> a(3, 1);
    a[1] = odd;
    const std::vector<float> b(3 * k_panel, 2);
    for (const auto& kernels : {portable_kernels(), with_bf16_instructions(best_kernels())}) {
      std::vector<float> c(k_panel);
      kernels.gemm_bf16({.m = 1,
                         .k = 3,
                         .panels = 1,
                         .a = a.data(),
                         .a_row = 3,
                         .b = b.data(),
                         .c = c.data(),
                         .c_row = k_panel,
                         .c_panel = k_panel});
      CHECK((std::isnan(odd) ? std::isnan(c[7]) : c[7] == odd));
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

TEST_CASE("what is no number stays none behind an activation or a pool") {
  for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
    const Pooling pooling{.grid = {2, 2}, .channels = k_panel};
    std::vector<float> tiles(16 * pooling.grid.plane(k_panel), 1.0F);
    tiles[5] = NAN;
    std::vector<float> pooled(k_panel);
    std::vector<std::uint8_t> chosen(k_panel);
    kernels->convolution.pool(pooling, tiles.data(), std::vector<float>(k_panel).data(),
                              pooled.data(), chosen.data());
    CHECK(std::isnan(pooled[5]));
    CHECK(pooled[6] == 9.0F);
    std::vector<float> y(k_panel, 1.0F);
    y[3] = NAN;
    kernels->bias_relu(1, k_panel, std::vector<float>(k_panel).data(), y.data());
    CHECK(std::isnan(y[3]));
    CHECK(y[4] == 1.0F);
  }
}

TEST_CASE("the loss over many classes is that over one panel, cut into panels") {
  constexpr std::size_t rows = 3;
  for (const std::size_t classes : {37, 1000}) {
    CAPTURE(classes);
    const std::vector<std::size_t> right = {0, classes / 2, classes - 1};
    const std::vector<std::int32_t> labels(right.begin(), right.end());
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
    std::int64_t correct = 0;
    std::vector<double> sums(padded(classes));
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      const auto logit = [&](std::size_t c) {
        return double{before[at(row, c)]} + double{bias[c]};
      };
      std::size_t largest = 0;
      for (std::size_t c = 0; c < classes; ++c) {
        sum += std::exp(logit(c));
        largest = logit(c) > logit(largest) ? c : largest;
      }
      correct += largest == right[row] ? 1 : 0;
      loss += std::log(sum) - logit(right[row]);
      for (std::size_t c = 0; c < padded(classes); ++c) {
        const double share = std::exp(logit(c)) / sum;
        const double expected = c >= classes ? 0 : share - (c == right[row] ? 1 : 0);
        CHECK(logits[at(row, c)] == doctest::Approx(expected).epsilon(1e-5));
        sums[c] += expected;
      }
    }
    for (std::size_t c = 0; c < padded(classes); ++c) {
      CHECK(dbias[c] == doctest::Approx(sums[c]).epsilon(1e-5));
    }
    CHECK(score.loss == doctest::Approx(loss));
    CHECK(score.correct == correct);
    logits = before;
    const Score alone = best_kernels().softmax_cross_entropy(
        rows, classes, labels.data(), bias.data(), 1, logits.data(), nullptr);
    CHECK(alone.loss == score.loss);
    CHECK(alone.correct == score.correct);
  }
}

TEST_CASE("Philox gives its authors' known answers") {
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  const std::uint32_t ones = 0xFFFFFFFF;
  CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
        std::array<std::uint32_t, 4>{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
}
