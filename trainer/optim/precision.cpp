// Compiled with -O3 (see trainer/CMakeLists.txt): loops that become vectors.
#include "trainer/optim/precision.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "trainer/device/halves.h"

namespace trainer {
namespace {

/// Bf16's narrow() and widen() without a branch.
float nearest_of_bf16(float value) {
  constexpr std::uint32_t k_kept = 0xffff0000;
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t up = (bits + 0x7fff + ((bits >> 16) & 1)) & k_kept;
  return bits_float((bits & k_float_size) > k_float_infinity ? bits | 0x400000 : up);
}

float nearest_of_fp16(float value) {
  constexpr float k_too_large = 65520; // From here on the nearest of fp16 would be 65536.
  return std::abs(value) >= k_too_large
             ? std::copysign(std::numeric_limits<float>::infinity(), value)
             : Fp16::widen(Fp16::narrow(value));
}

template <float (*Nearest)(float)>
bool round_all(std::span<const float> from, std::span<float> to) {
  std::uint32_t odd = 0; // Its highest bit: a value was not finite.
  for (std::size_t i = 0; i < from.size(); ++i) {
    const float value = Nearest(from[i]);
    odd |= (float_bits(value) & k_float_size) + (0x80000000U - k_float_infinity);
    to[i] = value;
  }
  return (odd >> 31) == 0;
}

} // namespace

bool round_to(Precision precision, std::span<const float> from, std::span<float> to) {
  return precision == Precision::fp16 ? round_all<nearest_of_fp16>(from, to)
                                      : round_all<nearest_of_bf16>(from, to);
}

} // namespace trainer
