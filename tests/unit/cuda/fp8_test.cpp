// FP8: its two types value by value, and products of what is rounded to them,
// their source run on the CPU, or on a GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/alike.h"
#include "tests/unit/trainer/device/matmul_oracle.h"
#include "tests/unit/variable.h"
#include "trainer/device/fp8.h"

using namespace trainer;
using namespace trainer::test;
using unit::Variable;

namespace {

constexpr float k_infinite = std::numeric_limits<float>::infinity();

/// Every finite value of a type that is not negative, in order: those of codes
/// 0 to its largest.
template <typename Type>
std::vector<float> values_of() {
  std::vector<float> values;
  for (int code = 0; code <= Type::k_largest_code; ++code) {
    values.push_back(Type::widen(static_cast<std::uint8_t>(code)));
  }
  return values;
}

/// Each value, what lies halfway to the next, and their neighbours as float32.
template <typename Type>
std::vector<float> cases_of() {
  const std::vector<float> values = values_of<Type>();
  std::vector<float> cases;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float next = i + 1 < values.size() ? values[i + 1] : 2 * values[i];
    for (const float at : {values[i], values[i] + (next - values[i]) / 2}) {
      for (const float value : {std::nextafter(at, 0.0F), at, std::nextafter(at, k_infinite)}) {
        cases.push_back(value);
        cases.push_back(-value);
      }
    }
  }
  return cases;
}

/// The nearest value; of two as near the one with an even code; at most the
/// largest.
template <typename Type>
float nearest(float value) {
  static const std::vector<float> values = values_of<Type>();
  const double size = std::abs(double{value});
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double distance = std::abs(values[i] - size);
    const double least = std::abs(values[best] - size);
    best = distance < least || (distance == least && i % 2 == 0) ? i : best;
  }
  return std::copysign(values[best], value);
}

template <typename Type>
void check_type(float largest, float least_normal, float least) {
  const std::vector<float> values = values_of<Type>();
  CHECK(values[0] == 0);
  CHECK(values[1] == least);
  CHECK(values.back() == largest);
  CHECK(Type::narrow(least_normal) == 1 << (23 - Type::k_shift));
  for (std::size_t i = 1; i < values.size(); ++i) {
    CHECK(values[i] > values[i - 1]);
  }
  for (const float value : cases_of<Type>()) {
    CAPTURE(value);
    CHECK(float_bits(Type::widen(Type::narrow(value))) == float_bits(nearest<Type>(value)));
    CHECK(Type::narrow_two(value, largest) == (Type::k_largest_code << 8 | Type::narrow(value)));
  }
  CHECK(Type::widen(Type::narrow(k_infinite)) == largest);
  CHECK(Type::widen(Type::narrow(-k_infinite)) == -largest);
  CHECK(std::isnan(Type::widen(Type::narrow(std::nanf("")))));
}

using Type = Matmul::Fp8;

/// Null if this machine's GPU has no FP8.
std::unique_ptr<CudaDevice> make_fp8_gpu() {
  auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  const bool has_it = gpu->set_matmul_precision(MatmulPrecision::fp8);
#ifndef DTRAIN_ON_GPU
  REQUIRE(has_it);
#endif
  return has_it ? std::move(gpu) : nullptr;
}

#ifdef DTRAIN_ON_GPU
int products() { return 0; }
#else
int products() { return cuda_on_cpu::fp8_products(); }
#endif

/// A matrix in a device's memory, as it is or transposed, with `gap` more
/// values a row.
template <typename Value>
class Placed {
 public:
  Placed(Device& device, const std::vector<float>& values, std::size_t rows, std::size_t columns,
         bool is_turned, std::size_t gap)
      : row((is_turned ? rows : columns) + gap),
        there_(device, lay(values, rows, columns, is_turned, row)) {}

  ConstTypedPointer pointer() { return {there_.data(), k_type_of<Value>}; }
  const std::size_t row; ///< Its stride.

 private:
  static std::vector<Value> lay(const std::vector<float>& values, std::size_t rows,
                                std::size_t columns, bool is_turned, std::size_t row) {
    std::vector<Value> laid((is_turned ? columns : rows) * row, Value(k_untouched));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t r = i / columns;
      const std::size_t c = i % columns;
      laid[is_turned ? c * row + r : r * row + c] = Value(values[i]);
    }
    return laid;
  }

  On<Value> there_;
};

/// `values` (rows, columns) as a product with the identity rounds them, as its
/// A or its B.
template <typename Value>
std::vector<float> rounded_by(Device& device, const std::vector<float>& values, std::size_t rows,
                              std::size_t columns, bool is_a, bool is_turned, Type type) {
  const std::size_t side = is_a ? columns : rows;
  std::vector<float> ones(side * side);
  for (std::size_t i = 0; i < side; ++i) {
    ones[i * side + i] = 1;
  }
  Placed<Value> matrix(device, values, rows, columns, is_turned, is_turned ? 16 : 0);
  Placed<Value> identity(device, ones, side, side, !is_turned, 32);
  On<float> c(device, std::vector<float>(rows * columns, NAN));
  Placed<Value>& a = is_a ? matrix : identity;
  Placed<Value>& b = is_a ? identity : matrix;
  device.kernels().matmul(device.stream(), {.m = rows,
                                            .n = columns,
                                            .k = side,
                                            .a_is_turned = is_a == is_turned,
                                            .b_is_turned = is_a != is_turned,
                                            .is_rounded = true,
                                            .fp8 = type,
                                            .a = a.pointer(),
                                            .b = b.pointer(),
                                            .c = c.data(),
                                            .a_row = a.row,
                                            .b_row = b.row});
  return c.read();
}

template <typename To, typename Value>
void check_rounding(Device& device, Type type, bool is_a) {
  constexpr std::size_t k_rows = 144; // More than a tile of the kernel's, and no whole ones.
  constexpr std::size_t k_columns = 80;
  for (const float size : {1.0F, std::ldexp(1.0F, -60), std::ldexp(1.0F, 100)}) {
    std::vector<float> cases = cases_of<To>();
    std::erase_if(cases,
                  [](float value) { return std::abs(value) > To::widen(To::k_largest_code); });
    std::vector<float> values(k_rows * k_columns);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = Value(size * cases[i * 7 % cases.size()]);
    }
    std::uint32_t largest = 0;
    for (const float value : values) {
      largest = std::max(largest, float_bits(value) & k_float_size);
    }
    const Fp8Scale scale = To::scale_for(largest);
    for (const bool is_turned : {false, true}) {
      const int before = products();
      const std::vector<float> found =
          rounded_by<Value>(device, values, k_rows, k_columns, is_a, is_turned, type);
#ifndef DTRAIN_ON_GPU
      CHECK(products() == before + 1);
#else
      (void)before;
#endif
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += found[i] == nearest<To>(values[i] * scale.to) * scale.from ? 0 : 1;
      }
      CAPTURE(size);
      CAPTURE(is_turned);
      CHECK(wrong == 0);
    }
  }
}

} // namespace

TEST_CASE("a value becomes the nearest of FP8's two types, or the even one of "
          "two as near") {
  check_type<E4m3>(448, std::ldexp(1.0F, -6), std::ldexp(1.0F, -9));
  check_type<E5m2>(57344, std::ldexp(1.0F, -14), std::ldexp(1.0F, -16));
}

TEST_CASE("a tensor's scale is a power of two that brings its largest "
          "magnitude to the type's") {
  const auto check = [](auto type, float largest) {
    using Type = decltype(type);
    for (const float size : {1e-30F, 1e-3F, 0.875F, 0.8750001F, 1.0F, 1.75F, 448.0F, 3e38F}) {
      const Fp8Scale scale = Type::scale_for(float_bits(size));
      CAPTURE(size);
      CHECK(size * scale.to <= largest);
      CHECK(2 * size * scale.to > largest);
      CHECK(scale.to * scale.from == 1);
      CHECK(std::ldexp(0.5F, std::ilogb(scale.to) + 1) == scale.to);
    }
    CHECK(Type::scale_for(0).to == 1);
    CHECK(Type::scale_for(0).from == 1);
    const Fp8Scale least = Type::scale_for(1); // Of a subnormal.
    CHECK(least.to * least.from == 1);
    for (const float size : {k_infinite, std::nanf("")}) {
      CHECK(std::isnan(Type::scale_for(float_bits(size)).to));
      CHECK(std::isnan(Type::scale_for(float_bits(size)).from));
    }
  };
  check(E4m3{}, 448);
  check(E5m2{}, 57344);
}

TEST_CASE("a product's operands are the nearest values of FP8, whatever their "
          "layout and type") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  if (gpu == nullptr) {
    return;
  }
  check_rounding<E4m3, float>(*gpu, Type::forward, true);
  check_rounding<E4m3, Bf16Value>(*gpu, Type::forward, false);
  check_rounding<E5m2, Bf16Value>(*gpu, Type::backward, true);
  check_rounding<E5m2, float>(*gpu, Type::backward, true);
  check_rounding<E4m3, Bf16Value>(*gpu, Type::backward, false);
}

TEST_CASE("a product in FP8 is float64's but for its rounding, with every epilogue") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  if (gpu == nullptr) {
    return;
  }
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const bool is_of_weight : {false, true}) {
      const int before = products();
      for (const Type fp8 : {Type::forward, Type::backward}) {
        check_epilogues(*gpu, {.m = 64,
                               .n = 48,
                               .k = 160,
                               .a_is_turned = is_of_weight,
                               .b_is_turned = fp8 == Type::forward,
                               .is_rounded = true,
                               .fp8 = fp8,
                               .a = {nullptr, type},
                               .b = {nullptr, is_of_weight ? type : DType::f32},
                               .c = {nullptr, is_of_weight ? DType::f32 : type}});
      }
#ifndef DTRAIN_ON_GPU
      CHECK(products() == before + (is_of_weight ? 22 : 18));
#else
      (void)before;
#endif
    }
  }
}

TEST_CASE("a tensor that is not finite makes all of a product NaN in FP8, and "
          "zeros stay zeros") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  if (gpu == nullptr) {
    return;
  }
  std::vector<float> values(32 * 16, 1);
  for (const Type type : {Type::forward, Type::backward}) {
    for (const float odd : {k_infinite, -k_infinite, std::nanf("")}) {
      values[77] = odd;
      const auto found = rounded_by<float>(*gpu, values, 32, 16, true, false, type);
      CHECK(std::all_of(found.begin(), found.end(), [](float value) { return std::isnan(value); }));
    }
    const auto found =
        rounded_by<float>(*gpu, std::vector<float>(32 * 16), 32, 16, true, true, type);
    CHECK(std::all_of(found.begin(), found.end(), [](float value) { return value == 0; }));
  }
}

TEST_CASE("a bias's gradient in FP8 is the sum of what is not rounded, over tiles of any number") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  if (gpu == nullptr) {
    return;
  }
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const bool accumulate : {false, true}) {
      for (const std::size_t rows : {16, 272, 1168}) {
        check_bias_gradient(*gpu, type, rows, 208, accumulate);
      }
    }
  }
}

#ifndef DTRAIN_ON_GPU
TEST_CASE("a product that cuBLASLt has not in FP8 is computed as without it") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  const int before = products();
  const Matmul fits{.m = 32,
                    .n = 48,
                    .k = 64,
                    .b_is_turned = true,
                    .is_rounded = true,
                    .fp8 = Type::forward,
                    .a = {nullptr, DType::bf16},
                    .c = {nullptr, DType::bf16}};
  const auto check = [&](auto change) {
    Matmul s = fits;
    change(s);
    check_matmul(*gpu, s);
  };
  check([](Matmul& s) { s.m = 33; }); // Which lies at an odd address, too.
  check([](Matmul& s) { s.n = 40; });
  check([](Matmul& s) { s.k = 72; });
  check([](Matmul& s) { s.a_row = 72; });
  check([](Matmul& s) { s.c_row = 56; });
  check([](Matmul& s) { s.fp8 = Type::none; });
  check([](Matmul& s) { // No epilogue can follow rows that are not contiguous.
    s.epilogue = Epilogue::gelu_tanh_bias;
    s.c_row = 64;
  });
  CHECK(products() == before);
  gpu->multiply_in(DType::f32);
  check([](Matmul& s) { s.a.type = s.c.type = DType::f32; });
  gpu->multiply_in(DType::bf16);
  CHECK(products() == before);
  check([](Matmul& /*s*/) {});
  CHECK(products() == before + 1);
  gpu->set_matmul_precision(MatmulPrecision::highest);
  check([](Matmul& /*s*/) {});
  CHECK(products() == before + 1);
}

TEST_CASE("a GPU has FP8 from compute capability 8.9 on, by cuBLASLt alone") {
  CHECK(!make_gpu()->set_matmul_precision(MatmulPrecision::fp8));
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  CHECK(make_gpu()->set_matmul_precision(MatmulPrecision::fp8));
  const Variable old("DTRAIN_FAKE_COMPUTE", "8");
  CHECK(!make_gpu()->set_matmul_precision(MatmulPrecision::fp8));
}
#endif
