// Random numbers by counter: a value is a pure function of (seed, stream, index), so any rank can
// draw any of them in any order, and a run resumes by knowing where it stopped. They are of
// Philox 4x32-10 (philox.h).
#pragma once

#include <array>
#include <cstdint>

namespace trainer {

/// What a stream of numbers is for, so that no two uses of a seed meet.
enum class RandomStream : std::uint32_t {
  shuffle = 1,
  weights = 2,
  synthetic_data = 3,
  dropout = 4,
  masking = 5,
  sampling = 6
};

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// Four numbers; `substream` is the layer or the epoch.
std::array<std::uint32_t, 4> random_at(std::uint64_t seed, RandomStream stream,
                                       std::uint32_t substream, std::uint64_t index);

/// In [0, 1), from the upper 24 bits.
constexpr float uniform(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0F / 16777216.0F);
}

} // namespace trainer
