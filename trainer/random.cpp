#include "trainer/random.h"

namespace trainer {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t k_multiplier0 = 0xD2511F53;
  constexpr std::uint64_t k_multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t k_weyl0 = 0x9E3779B9;
  constexpr std::uint32_t k_weyl1 = 0xBB67AE85;
  constexpr int k_rounds = 10;
  for (int round = 0; round < k_rounds; ++round) {
    const std::uint64_t product0 = k_multiplier0 * counter[0];
    const std::uint64_t product1 = k_multiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += k_weyl0;
    key[1] += k_weyl1;
  }
  return counter;
}

std::array<std::uint32_t, 4> random_at(std::uint64_t seed, RandomStream stream,
                                       std::uint32_t substream, std::uint64_t index) {
  return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                     substream, static_cast<std::uint32_t>(stream)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

} // namespace trainer
