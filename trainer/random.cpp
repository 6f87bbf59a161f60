#include "trainer/random.h"

#include "trainer/philox.h"

namespace trainer {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  const PhiloxWords words =
      philox({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {words.at[0], words.at[1], words.at[2], words.at[3]};
}

std::array<std::uint32_t, 4> random_at(std::uint64_t seed, RandomStream stream,
                                       std::uint32_t substream, std::uint64_t index) {
  return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                     substream, static_cast<std::uint32_t>(stream)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

} // namespace trainer
