// The two 8-bit types of floats (FP8), value by value: the same code on the CPU and in a GPU's
// kernels. E4M3 ends at 448 and has 3 bits of mantissa, E5M2 ends at 57344 and has 2. Rounded to
// the nearest, ties to even; what is larger than the largest value becomes that. A NaN stays one.
//
// A tensor is multiplied by a power of two before it is rounded, so that its largest magnitude is
// at most one binade below the type's: with a power of two nothing else is rounded. A tensor with
// an infinity or a NaN becomes all NaN, so that an overflow is seen wherever it is multiplied.
#pragma once

#include <cstdint>

#include "trainer/device/halves.h"
#include "trainer/on_both.h"

namespace trainer {

/// The power of two by which a tensor is multiplied before it is rounded, and its inverse, which a
/// product reads: it lies first, aligned as the struct.
struct Fp8Scale {
  float from = 1; ///< The inverse.
  float to = 1;
};

/// Bits of mantissa, bias of the exponent, and the exponent of the largest value, 1.75 · 2^Largest.
template <int Mantissa, int Bias, int Largest>
struct Fp8 {
  static constexpr std::uint8_t k_nan = 0x7f;
  static constexpr std::uint32_t k_largest_fraction = 0x600000; ///< Of 1.75 as float32.
  static constexpr std::uint32_t k_largest = ((127U + Largest) << 23) | k_largest_fraction;
  static constexpr std::uint32_t k_least_normal = (128U - Bias) << 23;
  static constexpr std::uint32_t k_exponents_apart = (127U - Bias) << 23;
  /// Its last place is the least value.
  static constexpr std::uint32_t k_rounds_to_least = (151U - Bias - Mantissa) << 23;
  static constexpr int k_shift = 23 - Mantissa;
  static constexpr std::uint8_t k_largest_code = (k_largest - k_exponents_apart) >> k_shift;

  DTRAIN_ON_BOTH static std::uint8_t narrow(float value) {
    const std::uint32_t bits = float_bits(value);
    const std::uint32_t size = bits & k_float_size;
    if (size > k_float_infinity) {
      return k_nan;
    }
    std::uint32_t code = k_largest_code;
    if (size < k_least_normal) { // This addition rounds to a whole number of the least value.
      code = float_bits(bits_float(size) + bits_float(k_rounds_to_least)) - k_rounds_to_least;
    } else if (size < k_largest) {
      constexpr std::uint32_t k_below_half = (1U << (k_shift - 1)) - 1;
      code = (size - k_exponents_apart + k_below_half + ((size >> k_shift) & 1)) >> k_shift;
    }
    return static_cast<std::uint8_t>(((bits >> 24) & 0x80) | code);
  }
  /// The codes of two values, the first in the low byte.
  DTRAIN_ON_BOTH static std::uint16_t narrow_two(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 // One instruction there.
    std::uint16_t both = 0;
    if constexpr (Mantissa == 3) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
    }
    return both;
#else
    return static_cast<std::uint16_t>(narrow(first) | (narrow(second) << 8));
#endif
  }

  /// Of a code that narrow() returns.
  DTRAIN_ON_BOTH static float widen(std::uint8_t code) {
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80) << 24;
    const std::uint32_t size = code & 0x7f;
    if (size > k_largest_code) {
      return bits_float(k_float_size);
    }
    if (size >> Mantissa == 0) {
      const float magnitude = bits_float(k_rounds_to_least | size) - bits_float(k_rounds_to_least);
      return bits_float(sign | float_bits(magnitude));
    }
    return bits_float(sign | ((size << k_shift) + k_exponents_apart));
  }

  /// For a tensor whose largest magnitude has these bits as a float32; a NaN is the largest.
  DTRAIN_ON_BOTH static Fp8Scale scale_for(std::uint32_t largest) {
    if (largest == 0) {
      return {};
    }
    if (largest >= k_float_infinity) {
      return {bits_float(k_float_size), bits_float(k_float_size)};
    }
    constexpr std::uint32_t k_both_biases = 254;
    constexpr std::uint32_t k_most = 253; // The inverse is no subnormal.
    const std::uint32_t above = (largest & 0x7fffff) > k_largest_fraction ? 1 : 0;
    const std::uint32_t exponent = k_both_biases + Largest - (largest >> 23) - above;
    const std::uint32_t to = exponent < k_most ? exponent : k_most;
    return {bits_float((k_both_biases - to) << 23), bits_float(to << 23)};
  }
};

using E4m3 = Fp8<3, 7, 8>;   ///< For activations and weights.
using E5m2 = Fp8<2, 15, 15>; ///< For gradients.

} // namespace trainer
