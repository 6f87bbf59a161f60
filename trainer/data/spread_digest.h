// Tells large data apart without reading all of them: by their length, and by blocks of them.
//
// Ranks compare digests of their data before they train. Reading all of 100 GB for that would keep
// a host's disk busy for minutes before the first step; blocks that are spread evenly, the first
// and the last among them, tell another file, files in another order, a shuffled one or one that
// was cut off. A change of a few bytes between blocks is not found, and not looked for: labels,
// which are small, and a token set's manifest, which has its shards' digests, are compared whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trainer {

inline constexpr std::size_t k_spread_block = std::size_t{64} << 10;
inline constexpr std::size_t k_spread_blocks = 1024;

struct SpreadBlock {
  std::size_t offset;
  std::size_t size;
};

/// What is read of so many bytes: all of k_spread_block · k_spread_blocks or fewer, else so many.
std::vector<SpreadBlock> spread_blocks(std::size_t bytes);

/// Not against forgery.
std::uint64_t spread_digest(std::span<const std::uint8_t> bytes, std::uint64_t seed);

} // namespace trainer
