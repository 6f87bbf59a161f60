// Every product that a device computes, of shapes that fill no tile, panel or strip, against sums
// in float64.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/random.h"

namespace trainer::test {

using Epilogue = Matmul::Epilogue;

/// Between -1 and 1, the same for the same `salt`.
inline std::vector<float> some_numbers(std::size_t count, std::uint32_t salt) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 2 * uniform(random_at(1, RandomStream::weights, salt, i)[0]) - 1;
  }
  return values;
}

/// What a product leaves, and behind it what it must not touch.
struct Product {
  std::vector<float> c;
  std::vector<float> beside;
};
inline constexpr std::size_t k_behind = 16;
inline constexpr float k_untouched = 77;

/// `s` with its memory on `device`, `offset` floats from where it is allocated.
inline Product multiply_on(Device& device, Matmul s, const std::vector<float>& a,
                           const std::vector<float>& b, const std::vector<float>& with,
                           Product before, std::size_t offset = 0) {
  std::vector<Buffer> there;
  const auto put = [&](const std::vector<float>& values) {
    there.push_back(device.allocate(offset + values.size(), DType::f32));
    device.stream().copy(values.data(), there.back().data() + offset,
                         values.size() * sizeof(float));
    return there.back().data() + offset;
  };
  before.c.insert(before.c.end(), k_behind, k_untouched);
  before.beside.insert(before.beside.end(), k_behind, k_untouched);
  s.a = put(a);
  s.b = put(b);
  s.with = put(with);
  s.c = put(before.c);
  s.beside = put(before.beside);
  device.kernels().matmul(device.stream(), s);
  device.stream().copy(s.c, before.c.data(), before.c.size() * sizeof(float));
  device.stream().copy(s.beside, before.beside.data(), before.beside.size() * sizeof(float));
  return before;
}

inline double phi(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
inline double gelu_slope_at(double x) {
  constexpr double k_peak = 0.3989422804014327; // 1 / √(2π)
  return phi(x) + x * k_peak * std::exp(-x * x / 2);
}

/// One product against float64, whose sums it misses by a rounding of each step at most.
inline void check_matmul(Device& device, const Matmul& s) {
  const std::vector<float> a = some_numbers(s.m * s.k, 1);
  const std::vector<float> b = some_numbers(s.k * s.n, 2);
  std::vector<float> with = some_numbers(s.m * s.n + s.n, 3);
  for (float& value : with) {
    value *= 4;
  }
  const bool has_sums = s.epilogue == Epilogue::bias_gradient;
  const bool has_u = s.epilogue == Epilogue::gelu_bias;
  const float before = s.accumulate ? 0.25F : NAN;
  const Product found =
      multiply_on(device, s, a, b, with,
                  {std::vector<float>(s.m * s.n, before), std::vector<float>(has_sums ? s.m
                                                                             : has_u  ? s.m * s.n
                                                                                      : 0,
                                                                             before)},
                  s.m % 2);
  const double start = s.accumulate ? 0.25 : 0;
  const auto a_at = [&](std::size_t row, std::size_t i) {
    return double{a[s.a_is_turned ? i * s.m + row : row * s.k + i]};
  };
  std::size_t wrong = 0;
  const auto check = [&](float value, double exact, double size) {
    const double bound = std::ldexp(static_cast<double>(s.k + 16), -24) * (size + 1);
    wrong += std::abs(double{value} - exact) <= bound ? 0 : 1;
  };
  for (std::size_t row = 0; row < s.m; ++row) {
    for (std::size_t column = 0; column < s.n; ++column) {
      double sum = 0;
      double size = 0;
      for (std::size_t i = 0; i < s.k; ++i) {
        const double one =
            a_at(row, i) * double{b[s.b_is_turned ? column * s.k + i : i * s.n + column]};
        sum += one;
        size += std::abs(one);
      }
      const std::size_t at = row * s.n + column;
      const double bias = with[column];
      const double u = with[at];
      const double biased = sum + bias;
      double exact = start + sum;
      double factor = 1;
      switch (s.epilogue) {
      case Epilogue::none:
      case Epilogue::bias_gradient:
        break;
      case Epilogue::bias:
        exact = biased;
        break;
      case Epilogue::relu_bias:
        exact = biased > 0 ? biased : 0;
        break;
      case Epilogue::gelu_bias:
        exact = biased * phi(biased);
        check(found.beside[at], biased, size + std::abs(bias));
        break;
      case Epilogue::drelu:
        exact = u > 0 ? sum : 0;
        break;
      case Epilogue::dgelu:
        exact = sum * gelu_slope_at(u);
        factor = 2;
        break;
      }
      check(found.c[at], exact, factor * (size + std::abs(bias)));
    }
    if (has_sums) {
      double sum = start;
      double size = 0;
      for (std::size_t i = 0; i < s.k; ++i) {
        sum += a_at(row, i);
        size += std::abs(a_at(row, i));
      }
      check(found.beside[row], sum, size);
    }
  }
  for (std::size_t i = 0; i < k_behind; ++i) {
    wrong += found.c[found.c.size() - 1 - i] == k_untouched ? 0 : 1;
    wrong += found.beside[found.beside.size() - 1 - i] == k_untouched ? 0 : 1;
  }
  CAPTURE(s.m);
  CAPTURE(s.n);
  CAPTURE(s.k);
  CAPTURE(s.a_is_turned);
  CAPTURE(s.b_is_turned);
  CAPTURE(s.accumulate);
  CAPTURE(static_cast<int>(s.epilogue));
  CHECK(wrong == 0);
}

inline void check_all_matmuls(Device& device) {
  struct Sides {
    std::size_t m, n, k;
  };
  for (const auto& [m, n, k] : {Sides{1, 1, 1},
                                {3, 7, 5},
                                {65, 10, 33},
                                {64, 128, 784},
                                {7, 64, 129},
                                {100, 1, 16},
                                {2, 257, 17},
                                {150, 33, 260},
                                {5, 300, 784}}) {
    for (const bool a_is_turned : {false, true}) {
      for (const bool b_is_turned : {false, true}) {
        Matmul s{.m = m, .n = n, .k = k, .a_is_turned = a_is_turned, .b_is_turned = b_is_turned};
        for (const Epilogue epilogue :
             {Epilogue::none, Epilogue::bias, Epilogue::relu_bias, Epilogue::gelu_bias,
              Epilogue::drelu, Epilogue::dgelu, Epilogue::bias_gradient}) {
          const bool is_gradient = epilogue == Epilogue::bias_gradient;
          if (is_gradient && !a_is_turned) {
            continue;
          }
          s.epilogue = epilogue;
          for (s.accumulate = false;; s.accumulate = true) {
            check_matmul(device, s);
            if (s.accumulate || (epilogue != Epilogue::none && !is_gradient)) {
              break;
            }
          }
        }
      }
    }
  }
  const Product found =
      multiply_on(device, {.m = 1, .n = 1, .k = 1, .epilogue = Epilogue::relu_bias}, {NAN}, {1},
                  {1}, {{0}, {}});
  CHECK(std::isnan(found.c[0])); // Of a relu too.
}

} // namespace trainer::test
