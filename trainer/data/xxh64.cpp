#include "trainer/data/xxh64.h"

#include <array>
#include <bit>
#include <cstring>

namespace trainer {
namespace {

constexpr std::uint64_t k_prime_1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t k_prime_2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t k_prime_3 = 0x165667B19E3779F9;
constexpr std::uint64_t k_prime_4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t k_prime_5 = 0x27D4EB2F165667C5;

/// Little-endian, as the machines this runs on.
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

std::uint64_t xxh64(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  const std::uint8_t* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t sum = seed + k_prime_5;
  std::array<std::uint64_t, 4> lanes = {seed + k_prime_1 + k_prime_2, seed + k_prime_2, seed,
                                        seed - k_prime_1};
  if (left >= sizeof lanes) {
    for (; left >= sizeof lanes; left -= sizeof lanes) {
      for (std::uint64_t& lane : lanes) {
        lane = round(lane, read_number<std::uint64_t>(at));
        at += sizeof lane;
      }
    }
    sum = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
          std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) {
      sum = (sum ^ round(0, lane)) * k_prime_1 + k_prime_4;
    }
  }
  sum += bytes.size();
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

} // namespace trainer
