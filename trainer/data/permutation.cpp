#include "trainer/data/permutation.h"

#include <bit>

#include "trainer/random.h"

namespace trainer {
namespace {

// The finalizer of MurmurHash3: every input bit reaches every output bit.
std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x85EBCA6B;
  x ^= x >> 13;
  x *= 0xC2B2AE35;
  return x ^ (x >> 16);
}

} // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size), half_bits_(static_cast<int>(std::bit_width(size > 1 ? size - 1 : 1) + 1) / 2) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto numbers =
        random_at(seed, RandomStream::shuffle, static_cast<std::uint32_t>(i / 4), epoch);
    keys_[i] = numbers[i % 4];
  }
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  do {
    std::uint64_t left = index >> half_bits_;
    std::uint64_t right = index & mask;
    for (const std::uint32_t key : keys_) {
      const std::uint64_t next = left ^ (mix(static_cast<std::uint32_t>(right) ^ key) & mask);
      left = right;
      right = next;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

} // namespace trainer
