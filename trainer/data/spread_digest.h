// Digest of large data by their length and by some blocks, without reading all of them.
//
// Ranks compare digests of their data before they train. Reading all of 100 GB for that would keep
// a host's disk busy for minutes before the first step. Evenly spread blocks, with the first and
// the last, detect another file, files in another order, a shuffled file and a truncated one. They
// do not detect a change of a few bytes between blocks. Labels, which are small, and a token set's
// manifest, which has its shards' digests, are compared whole.
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

/// The blocks of `bytes` that are read: all up to k_spread_block · k_spread_blocks, else so many.
std::vector<SpreadBlock> spread_blocks(std::size_t bytes);

/// Does not detect forgery.
std::uint64_t spread_digest(std::span<const std::uint8_t> bytes, std::uint64_t seed);

} // namespace trainer
