#include "trainer/data/xxh64.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace trainer {
namespace {

constexpr std::uint64_t k_prime_1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t k_prime_2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t k_prime_3 = 0x165667B19E3779F9;
constexpr std::uint64_t k_prime_4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t k_prime_5 = 0x27D4EB2F165667C5;

/// Reads little-endian, the byte order of all supported machines.
template <typename Word>
std::uint64_t read_number(const std::uint8_t* from) {
  Word word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

std::uint64_t round(std::uint64_t sum, std::uint64_t word) {
  return std::rotl(sum + word * k_prime_2, 31) * k_prime_1;
}

} // namespace

Xxh64::Xxh64(std::uint64_t seed)
    : seed_(seed), lanes_{seed + k_prime_1 + k_prime_2, seed + k_prime_2, seed, seed - k_prime_1} {}

/// Returns the end of what it consumed.
const std::uint8_t* Xxh64::take_stripes(const std::uint8_t* at, std::size_t count) {
  Lanes lanes = lanes_;
  for (; count > 0; --count) {
    for (std::uint64_t& lane : lanes) {
      lane = round(lane, read_number<std::uint64_t>(at));
      at += sizeof lane;
    }
  }
  lanes_ = lanes;
  return at;
}

void Xxh64::add(std::span<const std::uint8_t> bytes) {
  const std::size_t had = bytes_ % rest_.size();
  bytes_ += bytes.size();
  if (had > 0) {
    const std::size_t more = std::min(rest_.size() - had, bytes.size());
    std::copy_n(bytes.begin(), more, rest_.begin() + had);
    bytes = bytes.subspan(more);
    if (had + more < rest_.size()) {
      return;
    }
    take_stripes(rest_.data(), 1);
  }
  const std::uint8_t* const end = take_stripes(bytes.data(), bytes.size() / rest_.size());
  std::copy(end, bytes.data() + bytes.size(), rest_.begin());
}

std::uint64_t Xxh64::digest() const {
  std::uint64_t sum = seed_ + k_prime_5;
  if (bytes_ >= rest_.size()) {
    sum = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
          std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) {
      sum = (sum ^ round(0, lane)) * k_prime_1 + k_prime_4;
    }
  }
  sum += bytes_;
  const std::uint8_t* at = rest_.data();
  std::size_t left = bytes_ % rest_.size();
  for (; left >= 8; left -= 8, at += 8) {
    sum = std::rotl(sum ^ round(0, read_number<std::uint64_t>(at)), 27) * k_prime_1 + k_prime_4;
  }
  if (left >= 4) {
    sum = std::rotl(sum ^ (read_number<std::uint32_t>(at) * k_prime_1), 23) * k_prime_2 + k_prime_3;
    left -= 4;
    at += 4;
  }
  for (; left > 0; --left, ++at) {
    sum = std::rotl(sum ^ (*at * k_prime_5), 11) * k_prime_1;
  }
  sum = (sum ^ (sum >> 33)) * k_prime_2;
  sum = (sum ^ (sum >> 29)) * k_prime_3;
  return sum ^ (sum >> 32);
}

std::uint64_t xxh64(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  Xxh64 sum(seed);
  sum.add(bytes);
  return sum.digest();
}

} // namespace trainer
