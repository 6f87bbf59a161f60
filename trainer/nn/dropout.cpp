#include "trainer/nn/dropout.h"

#include <cmath>

namespace trainer {
namespace {

constexpr double k_steps = 65536; // Values of a number of 16 bits.

} // namespace

std::uint32_t DropoutRule::threshold() const {
  return static_cast<std::uint32_t>(std::lround(probability * k_steps));
}

float DropoutRule::scale() const { return static_cast<float>(k_steps / (k_steps - threshold())); }

KeepBits DropoutRule::bits(std::uint32_t site, std::uint64_t position, std::size_t words) const {
  return {seed, site, position * 2 * words, threshold()};
}

} // namespace trainer
