// A random order of 0 … size-1 that needs no memory: position i of epoch e is computed.
//
// A Feistel network over the smallest even number of bits that holds `size`: the number is split
// into two halves, each round adds a keyed hash of one half to the other, so every round, and hence
// the whole, is a bijection. Values past `size` are put through again (cycle walking) until one
// falls inside: fewer than four tries on average. Keys come from Philox by seed and epoch.
#pragma once

#include <array>
#include <cstdint>

namespace trainer {

class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);

  /// index < size; the result is too.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  static constexpr int k_rounds = 8;
  std::uint64_t size_;
  int half_bits_;
  std::array<std::uint32_t, k_rounds> keys_{};
};

} // namespace trainer
