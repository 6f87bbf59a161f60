#include "trainer/data/permutation.h"

#include <bit>

#include "trainer/random.h"

namespace trainer {

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size), half_bits_(static_cast<int>(std::bit_width(size > 1 ? size - 1 : 1) + 1) / 2) {
  for (std::uint32_t i = 0; i < k_rounds; ++i) {
    const auto numbers = random_at(seed, RandomStream::shuffle, i / 4, epoch);
    keys_[i] = numbers[i % 4];
  }
}

} // namespace trainer
