// Philox 4x32-10, of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
// (SC'11): ten rounds of two 32×32→64 bit products, each round's key bumped by a Weyl constant.
// What is drawn with it: random.h.
#pragma once

#include <cstdint>

#include "trainer/on_both.h"

namespace trainer {

/// Four words: a counter, and the numbers that come of it.
struct PhiloxWords {
  std::uint32_t at[4];
};

DTRAIN_ON_BOTH inline PhiloxWords philox(PhiloxWords counter, std::uint32_t key0,
                                         std::uint32_t key1) {
  constexpr std::uint64_t k_multiplier0 = 0xD2511F53;
  constexpr std::uint64_t k_multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t k_weyl0 = 0x9E3779B9;
  constexpr std::uint32_t k_weyl1 = 0xBB67AE85;
  constexpr int k_rounds = 10;
  for (int round = 0; round < k_rounds; ++round) {
    const std::uint64_t product0 = k_multiplier0 * counter.at[0];
    const std::uint64_t product1 = k_multiplier1 * counter.at[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.at[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.at[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += k_weyl0;
    key1 += k_weyl1;
  }
  return counter;
}

} // namespace trainer
