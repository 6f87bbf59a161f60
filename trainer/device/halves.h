// The two 16-bit types of floats, value by value: the same code on the CPU and in a GPU's kernels.
// Rounded to the nearest, ties to even. bf16 has float32's range. fp16 ends at 65504: what is
// finite and larger becomes that, what is below 6e-8 becomes 0. Infinity and NaN stay what they
// are.
#pragma once

#include <cstdint>
#include <cstring>

#include "trainer/on_both.h"

namespace trainer {

inline constexpr std::uint32_t k_float_infinity = 0x7f800000; ///< float32's.
inline constexpr std::uint32_t k_float_size = 0x7fffffff;

DTRAIN_ON_BOTH inline std::uint32_t float_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
DTRAIN_ON_BOTH inline float bits_float(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Bf16 {
  DTRAIN_ON_BOTH static std::uint16_t narrow(float value) {
    const auto bits = float_bits(value);
    if ((bits & k_float_size) > k_float_infinity) {
      return static_cast<std::uint16_t>((bits >> 16) | 0x40); // A NaN stays one.
    }
#ifdef __CUDA_ARCH__ // One instruction there.
    std::uint16_t half = 0;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
#endif
  }

  DTRAIN_ON_BOTH static float widen(std::uint16_t half) {
    return bits_float(static_cast<std::uint32_t>(half) << 16);
  }
};

/// A value in memory, of which one computes as a float32.
struct Bf16Value {
  std::uint16_t bits = 0;

  Bf16Value() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): rounded as it is stored.
  DTRAIN_ON_BOTH Bf16Value(float value) : bits(Bf16::narrow(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  DTRAIN_ON_BOTH operator float() const { return Bf16::widen(bits); }
};
static_assert(sizeof(Bf16Value) == 2);

struct Fp16 {
  static constexpr std::uint32_t k_largest = 0x477fe000;      ///< 65504 as float32.
  static constexpr std::uint32_t k_least_normal = 0x38800000; ///< 2^-14
  static constexpr std::uint32_t k_exponents_apart = (127U - 15U) << 23;

  DTRAIN_ON_BOTH static std::uint16_t narrow(float value) {
    const auto bits = float_bits(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000;
    const std::uint32_t size = bits & k_float_size;
    std::uint32_t half = 0;
    if (size > k_float_infinity) {
      half = 0x7e00 | ((size >> 13) & 0x3ff);
    } else if (size == k_float_infinity) {
      half = 0x7c00;
    } else if (size >= k_largest) {
      half = 0x7bff;
    } else if (size >= k_least_normal) {
      half = (size - k_exponents_apart + 0xfff + ((size >> 13) & 1)) >> 13;
    } else {
      // The last place of 0.5 is the least fp16, so this addition rounds to a whole number of it.
      half = float_bits(bits_float(size) + 0.5F) - float_bits(0.5F);
    }
    return static_cast<std::uint16_t>(sign | half);
  }

  DTRAIN_ON_BOTH static float widen(std::uint16_t half) {
    constexpr float k_least = 0x1p-24F;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    const std::uint32_t exponent = half & 0x7c00;
    const std::uint32_t rest = half & 0x3ff;
    if (exponent == 0) {
      const auto size = float_bits(static_cast<float>(rest) * k_least);
      return bits_float(sign | size);
    }
    const std::uint32_t moved = (exponent | rest) << 13;
    return bits_float(
        sign | (exponent == 0x7c00 ? k_float_infinity | rest << 13 : moved + k_exponents_apart));
  }
};

/// fp16 whose overflow is seen, as IEEE 754 rounds to it: what is finite and too large is infinite.
struct OverflowingFp16 : Fp16 {
  static constexpr std::uint32_t k_too_large = 0x477ff000; ///< 65520, half-way to 65536.

  DTRAIN_ON_BOTH static std::uint16_t narrow(float value) {
    const auto bits = float_bits(value);
    const std::uint32_t size = bits & k_float_size;
    const bool overflows = size >= k_too_large && size < k_float_infinity;
    return Fp16::narrow(overflows ? bits_float((bits & ~k_float_size) | k_float_infinity) : value);
  }
};

} // namespace trainer
