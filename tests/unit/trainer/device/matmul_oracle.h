// Every product that a device computes, of shapes that fill no tile, panel or strip, against sums
// in float64.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/unit/trainer/device/gelu.h"
#include "tests/unit/trainer/device/on_device.h"

namespace trainer::test {

using Epilogue = Matmul::Epilogue;

/// What a product leaves, and behind it what it must not touch.
struct Product {
  std::vector<float> c;
  std::vector<float> beside;
};
inline constexpr std::size_t k_behind = 16;
inline constexpr float k_untouched = 77;

/// `s` with its memory on `device`, of the types that A, B and C have there, `offset` values from
/// where it is allocated.
inline Product multiply_on(Device& device, Matmul s, const std::vector<float>& a,
                           const std::vector<float>& b, const std::vector<float>& with,
                           Product before, std::size_t offset = 0) {
  std::vector<Buffer> there;
  const auto put = [&](const std::vector<float>& values, DType type) {
    there.push_back(device.allocate(offset + values.size(), type));
    const TypedPointer to = TypedPointer(there.back()) + offset;
    const std::vector<Bf16Value> rounded(values.begin(), values.end());
    device.stream().copy(type == DType::f32 ? static_cast<const void*>(values.data())
                                            : static_cast<const void*>(rounded.data()),
                         to.memory, values.size() * size_of(type));
    return to;
  };
  const auto read = [&](const TypedPointer& from, std::vector<float>& to) {
    std::vector<Bf16Value> rounded(to.size());
    device.stream().copy(from.memory,
                         from.type == DType::f32 ? static_cast<void*>(to.data())
                                                 : static_cast<void*>(rounded.data()),
                         to.size() * size_of(from.type));
    if (from.type != DType::f32) {
      to.assign(rounded.begin(), rounded.end());
    }
  };
  before.c.insert(before.c.end(), k_behind, k_untouched);
  before.beside.insert(before.beside.end(), k_behind, k_untouched);
  const bool is_slope = s.epilogue >= Epilogue::drelu && s.epilogue <= Epilogue::dgelu_tanh;
  const bool has_sums = s.epilogue == Epilogue::bias_gradient;
  s.a = put(a, s.a.type);
  s.b = put(b, s.b.type);
  s.with = put(with, is_slope ? s.c.type : DType::f32);
  s.c = put(before.c, s.c.type);
  s.beside = put(before.beside, has_sums ? DType::f32 : s.c.type);
  device.kernels().matmul(device.stream(), s);
  read(s.c, before.c);
  read(s.beside, before.beside);
  return before;
}

/// A and B of a product, or of a batch of them, and in float64 what they make, product after
/// product, row after row: whatever its epilogue, it is the same.
struct Operands {
  explicit Operands(const Matmul& s);

  std::vector<float> a, b;
  std::vector<double> sums;
  std::vector<double> sizes;    ///< Of the steps, |a·b|, summed.
  std::vector<double> row_sums; ///< Of A's rows, of the first product,
  std::vector<double> row_sizes;
};

inline Operands::Operands(const Matmul& s)
    : sums(s.batch * s.m * s.n), sizes(sums.size()), row_sums(s.m), row_sizes(s.m) {
  const Matmul one = s.one(0); // For its strides.
  const std::size_t last = s.batch - 1;
  a = numbers(last * s.a_batch + (s.a_is_turned ? s.k : s.m) * one.a_row, 1);
  b = numbers(last * s.b_batch + (s.b_is_turned ? s.n : s.k) * one.b_row, 2);
  for (std::size_t i = 0; i < s.batch; ++i) {
    const float* const of_a = a.data() + i * s.a_batch;
    const float* const of_b = b.data() + i * s.b_batch;
    for (std::size_t row = 0; row < s.m; ++row) {
      double* const sum = sums.data() + (i * s.m + row) * s.n;
      double* const size = sizes.data() + (i * s.m + row) * s.n;
      for (std::size_t step = 0; step < s.k; ++step) {
        const double left = of_a[s.a_is_turned ? step * one.a_row + row : row * one.a_row + step];
        for (std::size_t column = 0; column < s.n; ++column) {
          const double product =
              left * of_b[s.b_is_turned ? column * one.b_row + step : step * one.b_row + column];
          sum[column] += product;
          size[column] += std::abs(product);
        }
        row_sums[row] += i == 0 ? left : 0;
        row_sizes[row] += i == 0 ? std::abs(left) : 0;
      }
    }
  }
}

/// Against float64, whose sums it misses by a rounding of each step at most; and of what is rounded
/// to 16 bits or to FP8 by so much of its size.
inline void check_matmul(Device& device, const Matmul& s, const Operands& operands) {
  const bool is_of_halves = s.a.type == DType::bf16 || s.b.type == DType::bf16;
  const double rounding = s.fp8 == Matmul::Fp8::forward                             ? 0.16
                          : s.fp8 == Matmul::Fp8::backward                          ? 0.24
                          : s.is_rounded || is_of_halves || s.c.type == DType::bf16 ? 0.01
                                                                                    : 0;
  const Matmul one = s.one(0); // For its strides.
  const std::size_t last = s.batch - 1;
  const std::size_t size_of_c = last * s.c_batch + s.m * one.c_row;
  std::vector<float> with = numbers(size_of_c + s.n, 3);
  for (float& value : with) {
    value *= 4;
  }
  const bool has_sums = s.epilogue == Epilogue::bias_gradient;
  const bool has_u = s.epilogue == Epilogue::gelu_bias || s.epilogue == Epilogue::gelu_tanh_bias;
  const float before = s.accumulate ? 0.25F : NAN;
  std::vector<float> c(size_of_c, k_untouched);
  for (std::size_t i = 0; i < s.batch * s.m * s.n; ++i) {
    c[i / (s.m * s.n) * s.c_batch + i / s.n % s.m * one.c_row + i % s.n] = before;
  }
  const Product found = multiply_on(device, s, operands.a, operands.b, with,
                                    {c, has_sums ? std::vector<float>(s.m, before)
                                        : has_u  ? c
                                                 : std::vector<float>{}},
                                    s.m % 2);
  std::vector<bool> is_free(found.c.size(), true);
  const double start = s.accumulate ? 0.25 : 0;
  std::size_t wrong = 0;
  const auto check = [&](float value, double exact, double size) {
    const double bound = (std::ldexp(static_cast<double>(s.k + 16), -24) + rounding) * (size + 1);
    wrong += std::abs(double{value} - exact) <= bound ? 0 : 1;
  };
  for (std::size_t i = 0; i < s.batch; ++i) {
    for (std::size_t row = 0; row < s.m; ++row) {
      for (std::size_t column = 0; column < s.n; ++column) {
        const std::size_t place = (i * s.m + row) * s.n + column;
        const double sum = operands.sums[place];
        const double size = operands.sizes[place];
        const std::size_t at = i * s.c_batch + row * one.c_row + column;
        is_free[at] = false;
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
        case Epilogue::gelu_tanh_bias:
          exact = biased * gelu_share_at(biased);
          check(found.beside[at], biased, size + std::abs(bias));
          break;
        case Epilogue::dgelu_tanh:
          exact = sum * gelu_tanh_slope_at(u);
          factor = 2;
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
        check(found.beside[row], start + operands.row_sums[row], operands.row_sizes[row]);
      }
    }
  }
  for (std::size_t i = 0; i < is_free.size(); ++i) {
    const bool is_kept = found.c[i] == k_untouched && (!has_u || found.beside[i] == k_untouched);
    wrong += is_free[i] && !is_kept ? 1 : 0;
  }
  for (std::size_t i = 1; i <= k_behind; ++i) {
    wrong += found.beside[found.beside.size() - i] == k_untouched ? 0 : 1;
  }
  CAPTURE(s.m);
  CAPTURE(s.n);
  CAPTURE(s.k);
  CAPTURE(s.a_is_turned);
  CAPTURE(s.b_is_turned);
  CAPTURE(s.accumulate);
  CAPTURE(s.c_row);
  CAPTURE(s.batch);
  CAPTURE(static_cast<int>(s.epilogue));
  CAPTURE(static_cast<int>(s.a.type));
  CAPTURE(static_cast<int>(s.b.type));
  CAPTURE(static_cast<int>(s.c.type));
  CHECK(wrong == 0);
}

inline void check_matmul(Device& device, const Matmul& s) { check_matmul(device, s, Operands(s)); }

/// `s` with each epilogue, and added to what is there.
inline void check_epilogues(Device& device, Matmul s) {
  const Operands operands(s);
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::relu_bias,
                                  Epilogue::gelu_bias, Epilogue::gelu_tanh_bias, Epilogue::drelu,
                                  Epilogue::dgelu, Epilogue::dgelu_tanh, Epilogue::bias_gradient}) {
    const bool is_gradient = epilogue == Epilogue::bias_gradient;
    s.epilogue = epilogue;
    for (const bool accumulate : {false, true}) {
      s.accumulate = accumulate;
      if ((!is_gradient || s.a_is_turned) &&
          (!accumulate || is_gradient || epilogue == Epilogue::none)) {
        check_matmul(device, s, operands);
      }
    }
  }
}

/// Of A, B and C.
struct MatmulTypes {
  DType a = DType::f32;
  DType b = DType::f32;
  DType c = DType::f32;
};

inline void check_all_matmuls(Device& device, bool is_rounded = false,
                              const MatmulTypes& types = {}) {
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
                                {5, 300, 784},
                                {10, 20, 1028},    // A few tiles, for which a GPU has a kernel.
                                {13, 150, 1024},   // The CPU copies rows of A 4 KiB apart,
                                {163, 130, 70}}) { // and turns a turned A.
    for (const bool a_is_turned : {false, true}) {
      for (const bool b_is_turned : {false, true}) {
        check_epilogues(device, {.m = m,
                                 .n = n,
                                 .k = k,
                                 .a_is_turned = a_is_turned,
                                 .b_is_turned = b_is_turned,
                                 .is_rounded = is_rounded,
                                 .a = {nullptr, types.a},
                                 .b = {nullptr, types.b},
                                 .c = {nullptr, types.c}});
      }
    }
  }
  // Heads, which lie beside each other in their rows, and the first of them alone.
  for (const bool a_is_turned : {false, true}) {
    for (const bool b_is_turned : {false, true}) {
      for (const std::size_t n : {16, 21}) {
        Matmul s{.m = 19,
                 .n = n,
                 .k = 35,
                 .a_is_turned = a_is_turned,
                 .b_is_turned = b_is_turned,
                 .is_rounded = is_rounded,
                 .a = {nullptr, types.a},
                 .b = {nullptr, types.b},
                 .c = {nullptr, types.c}};
        s.a_batch = a_is_turned ? s.m : s.k;
        s.b_batch = b_is_turned ? s.k : s.n;
        s.c_batch = s.n;
        s.a_row = 3 * s.a_batch;
        s.b_row = 3 * s.b_batch;
        s.c_row = 3 * s.c_batch;
        check_epilogues(device, s);
        s.batch = 3;
        check_matmul(device, s);
      }
    }
  }
  const Product found =
      multiply_on(device, {.m = 1, .n = 1, .k = 1, .epilogue = Epilogue::relu_bias}, {NAN}, {1},
                  {1}, {{0}, {}});
  CHECK(std::isnan(found.c[0])); // Of a relu too.
}

} // namespace trainer::test
