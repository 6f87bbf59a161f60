// Transposes a square of 16 × 16 values, in vectors of 64 bytes. For files that are compiled for
// AVX-512; nothing here calls an inline function of a library: see vector.h.
#pragma once

#include <cstddef>

namespace trainer {
namespace {

/// Column j of the sixteen rows becomes row j. Row is a vector of 16 values of 32 bits.
template <typename Row>
inline void transpose(Row (&x)[16]) {
  Row y[16];
  for (std::size_t i = 0; i < 16; i += 2) { // Within each quarter of a row, by single values,
    y[i] = __builtin_shufflevector(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28,
                                   13, 29);
    y[i + 1] = __builtin_shufflevector(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27,
                                       14, 30, 15, 31);
  }
  for (std::size_t i = 0; i < 16; i += 4) { // by pairs: now x[i + j] is columns 4 · quarter + j,
    for (std::size_t j = 0; j < 2; ++j) {   // rows i to i + 3,
      const Row first = y[i + j];
      const Row second = y[i + j + 2];
      x[i + 2 * j] = __builtin_shufflevector(first, second, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24,
                                             25, 12, 13, 28, 29);
      x[i + 2 * j + 1] = __builtin_shufflevector(first, second, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11,
                                                 26, 27, 14, 15, 30, 31);
    }
  }
  const auto even = [](Row a, Row b) { // And quarters: 0 and 2 of both,
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  };
  const auto odd = [](Row a, Row b) { // 1 and 3.
    return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30,
                                   31);
  };
  for (std::size_t j = 0; j < 4; ++j) {
    const Row even_above = even(x[j], x[j + 4]);
    const Row even_below = even(x[j + 8], x[j + 12]);
    const Row odd_above = odd(x[j], x[j + 4]);
    const Row odd_below = odd(x[j + 8], x[j + 12]);
    x[j] = even(even_above, even_below);
    x[j + 8] = odd(even_above, even_below);
    x[j + 4] = even(odd_above, odd_below);
    x[j + 12] = odd(odd_above, odd_below);
  }
}

} // namespace
} // namespace trainer
