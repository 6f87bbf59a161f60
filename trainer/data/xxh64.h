// XXH64, Yann Collet's hash (the xxHash specification, github.com/Cyan4973/xxHash): tells files and
// data sets apart at the speed of memory. No protection against forgery.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trainer {

/// Of bytes that come one part after the other.
class Xxh64 {
 public:
  explicit Xxh64(std::uint64_t seed);

  void add(std::span<const std::uint8_t> bytes);
  std::uint64_t digest() const; ///< Of all so far.

 private:
  using Lanes = std::array<std::uint64_t, 4>;
  const std::uint8_t* take_stripes(const std::uint8_t* at, std::size_t count);

  std::uint64_t seed_;
  Lanes lanes_;
  std::array<std::uint8_t, sizeof(Lanes)> rest_{}; ///< What does not fill a stripe yet.
  std::uint64_t bytes_ = 0;
};

std::uint64_t xxh64(std::span<const std::uint8_t> bytes, std::uint64_t seed);

} // namespace trainer
