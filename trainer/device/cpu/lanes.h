// A vector of floats in the compiler's vector extensions: the instructions for + - * / >, and where
// multiply and add fuse, follow from the target of the file. The extensions are slow for bytes:
// each file defines those two functions itself.
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer {
namespace {

/// F: a vector of floats; B: a vector of as many bytes.
template <typename F, typename B>
struct Lanes {
  using Floats = F;
  using Longs [[gnu::vector_size(sizeof(F))]] = std::uint64_t;
  static constexpr std::size_t k_lanes = sizeof(B);
  // The sums of these rows, 2 of B and 1 of A take 15 of 16 registers; with AVX-512 27 of 32.
  static constexpr std::size_t k_tile_rows = k_lanes == 16 ? 12 : 6;

  static F load(const float* from) {
    F x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
  }
  static void store(float* to, F x) { __builtin_memcpy(to, &x, sizeof x); }
  static F all(float x) { return x - F{}; }
  /// Of the lower halves.
  static Longs product(Longs a, Longs b) { return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF); }
  static F floats_of(const std::uint8_t* from) {
    B bytes;
    __builtin_memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, F);
  }
  static void store_bytes(std::uint8_t* to, F x) {
    const B bytes = __builtin_convertvector(x, B);
    __builtin_memcpy(to, &bytes, sizeof bytes);
  }
};

/// The given values, then zeros.
template <typename V>
inline typename V::Floats load_some(const float* from, std::size_t count) {
  if (count >= V::k_lanes) {
    return V::load(from);
  }
  typename V::Floats x{};
  __builtin_memcpy(&x, from, count * sizeof(float));
  return x;
}

/// Stores the first `count` values, or all if there are fewer.
template <typename V>
inline void store_some(float* to, typename V::Floats x, std::size_t count) {
  if (count >= V::k_lanes) {
    V::store(to, x);
  } else {
    __builtin_memcpy(to, &x, count * sizeof(float));
  }
}

} // namespace
} // namespace trainer
