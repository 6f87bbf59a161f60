#include "trainer/collectives/wire.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

using namespace trainer;

namespace {

std::uint16_t narrowed(const WireKernels& kernels, float value) {
  std::uint16_t half = 0;
  kernels.narrow(&half, &value, 1);
  return half;
}

float widened(const WireKernels& kernels, std::uint16_t half) {
  float value = 0;
  kernels.widen(&value, &half, 1);
  return value;
}

/// Of every exponent and sign, ties and their neighbours among them.
std::vector<float> telling_values() {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return values;
}

bool same_float(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

} // namespace

TEST_CASE("16-bit values come back from float32 as they were") {
  for (const WireType type : {WireType::bf16, WireType::fp16}) {
    const WireKernels& kernels = portable_wire_kernels(type);
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
      const float value = widened(kernels, static_cast<std::uint16_t>(half));
      if (!std::isnan(value) && narrowed(kernels, value) != half) {
        FAIL(wire_type_name(type) << " " << half);
      }
    }
  }
}

TEST_CASE("rounding takes the nearest 16-bit value, and the even one of two") {
  for (const WireType type : {WireType::bf16, WireType::fp16}) {
    CAPTURE(wire_type_name(type));
    const WireKernels& kernels = portable_wire_kernels(type);
    const std::uint16_t infinity = type == WireType::bf16 ? 0x7f80 : 0x7c00;
    for (std::uint16_t half = 0; half + 1 < infinity; ++half) {
      const double below = widened(kernels, half);
      const double above = widened(kernels, static_cast<std::uint16_t>(half + 1));
      const auto middle = static_cast<float>((below + above) / 2); // Exact: a float32 has the bits.
      const int even = half % 2 == 0 ? half : half + 1;
      const bool right = narrowed(kernels, middle) == even &&
                         narrowed(kernels, std::nextafter(middle, 0.0F)) == half &&
                         narrowed(kernels, std::nextafter(middle, 1e38F)) == half + 1;
      if (!right && middle < 1e38F) {
        FAIL("between " << below << " and " << above);
      }
    }
  }
}

TEST_CASE("known values have the bits that the formats' definitions give them") {
  const WireKernels& bf16 = wire_kernels(WireType::bf16);
  const WireKernels& fp16 = wire_kernels(WireType::fp16);
  CHECK(narrowed(bf16, 1.0F) == 0x3f80);
  CHECK(narrowed(bf16, -3.140625F) == 0xc049);
  CHECK(narrowed(fp16, 1.0F) == 0x3c00);
  CHECK(narrowed(fp16, -2.0F) == 0xc000);
  CHECK(narrowed(fp16, 0x1p-24F) == 0x0001);
  CHECK(widened(fp16, 0x7bff) == 65504.0F);
}

TEST_CASE("fp16 cuts off what is finite and too large, and lets infinity and NaN show") {
  constexpr float k_infinity = std::numeric_limits<float>::infinity();
  for (const WireKernels* kernels :
       {&wire_kernels(WireType::fp16), &portable_wire_kernels(WireType::fp16)}) {
    for (const float large : {65504.0F, 65519.0F, 65520.0F, 1e6F, 3e38F}) {
      CHECK(widened(*kernels, narrowed(*kernels, large)) == 65504.0F);
      CHECK(widened(*kernels, narrowed(*kernels, -large)) == -65504.0F);
    }
    CHECK(widened(*kernels, narrowed(*kernels, k_infinity)) == k_infinity);
    CHECK(widened(*kernels, narrowed(*kernels, -k_infinity)) == -k_infinity);
    CHECK(std::isnan(widened(*kernels, narrowed(*kernels, std::nanf("")))));
  }
}

TEST_CASE("the machine's own instructions give the portable code's bits") {
  const std::vector<float> values = telling_values();
  const std::size_t count = values.size() - 3; // A tail that fills no vector.
  const std::vector<float> others(values.rbegin(), values.rend());
  for (const WireType type : {WireType::bf16, WireType::fp16}) {
    CAPTURE(wire_type_name(type));
    const WireKernels& fast = wire_kernels(type);
    const WireKernels& plain = portable_wire_kernels(type);
    std::vector<std::uint16_t> a(count);
    std::vector<std::uint16_t> b(count);
    fast.narrow(a.data(), values.data(), count);
    plain.narrow(b.data(), values.data(), count);
    CHECK(a == b);
    std::vector<float> wide_a(count);
    std::vector<float> wide_b(count);
    fast.widen(wide_a.data(), a.data(), count);
    plain.widen(wide_b.data(), a.data(), count);
    const auto same = [&] {
      for (std::size_t i = 0; i < count; ++i) {
        if (!same_float(wide_a[i], wide_b[i])) {
          return false;
        }
      }
      return true;
    };
    CHECK(same());
    fast.add(a.data(), a.data(), others.data(), count);
    plain.add(b.data(), b.data(), others.data(), count);
    bool added = true;
    for (std::size_t i = 0; i < count; ++i) {
      added = added && same_float(widened(plain, a[i]), widened(plain, b[i]));
    }
    CHECK(added);
    const std::vector<const float*> in = {values.data(), others.data(), values.data()};
    const std::vector<float*> out_a = {wide_a.data()};
    const std::vector<float*> out_b = {wide_b.data()};
    fast.sum_to_all(out_a, in, count);
    plain.sum_to_all(out_b, in, count);
    CHECK(same());
  }
}
