// A random order of 0 … size-1 that needs no memory: position i of epoch e is computed.
//
// A Feistel network over the smallest even number of bits that holds `size`: the number is split
// into two halves, each round adds a keyed hash of one half to the other, so every round, and hence
// the whole, is a bijection. Values past `size` are put through again (cycle walking) until one
// falls inside: fewer than four tries on average. Keys come from Philox by seed and epoch.
#pragma once

#include <cstdint>

#include "trainer/on_both.h"

namespace trainer {

class Permutation {
 public:
  Permutation() = default; ///< Of one.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);

  /// index < size; the result is too.
  DTRAIN_ON_BOTH std::uint64_t operator()(std::uint64_t index) const {
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

 private:
  /// The finalizer of MurmurHash3: every input bit reaches every output bit.
  DTRAIN_ON_BOTH static std::uint32_t mix(std::uint32_t x) {
    x ^= x >> 16;
    x *= 0x85EBCA6B;
    x ^= x >> 13;
    x *= 0xC2B2AE35;
    return x ^ (x >> 16);
  }

  static constexpr int k_rounds = 8;
  std::uint64_t size_ = 1;
  int half_bits_ = 1;
  std::uint32_t keys_[k_rounds] = {};
};

} // namespace trainer
