#include "trainer/data/spread_digest.h"

#include "trainer/data/xxh64.h"

namespace trainer {

std::vector<SpreadBlock> spread_blocks(std::size_t bytes) {
  if (bytes <= k_spread_block * k_spread_blocks) {
    return {{0, bytes}};
  }
  std::vector<SpreadBlock> blocks;
  const std::size_t last = bytes - k_spread_block;
  constexpr std::size_t k_gaps = k_spread_blocks - 1;
  for (std::size_t i = 0; i <= k_gaps; ++i) { // last · i / k_gaps, whatever `last` is.
    blocks.push_back({last / k_gaps * i + last % k_gaps * i / k_gaps, k_spread_block});
  }
  return blocks;
}

std::uint64_t spread_digest(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  Xxh64 sum(seed + bytes.size());
  for (const SpreadBlock& block : spread_blocks(bytes.size())) {
    sum.add(bytes.subspan(block.offset, block.size));
  }
  return sum.digest();
}

} // namespace trainer
