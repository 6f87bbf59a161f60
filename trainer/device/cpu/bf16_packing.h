// Copies of matrices in bf16 by AVX-512's conversions, for the instructions that multiply them
// (Bf16Instructions). Files that include this are compiled for those; nothing here calls an inline
// function of a library: see vector.h.
#pragma once

#include <immintrin.h>

#include "trainer/device/cpu/bf16_products.h"
#include "trainer/device/cpu/transpose.h"

namespace trainer {
namespace {

using Pairs16 [[gnu::vector_size(64)]] = Bf16Pair;

/// The values, beginning with the first of a pair.
inline std::size_t left_of(const Bf16Depth& depth, std::size_t pair) {
  return 2 * pair < depth.k ? depth.k - 2 * pair : 0;
}

inline __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= k_panel ? 0xffffU : (1U << count) - 1U);
}

/// Interleaves 16 first and 16 second values into pairs.
inline __m512i paired(__m512 first, __m512 second) {
  const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(first));
  const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(second));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/// Pairs of the first 32 values, or of `left` if fewer.
inline __m512i load_pairs(const float* from, std::size_t left) {
  const __m512 low = _mm512_maskz_loadu_ps(first_lanes(left), from);
  const __m512 high = left > k_panel
                          ? _mm512_maskz_loadu_ps(first_lanes(left - k_panel), from + k_panel)
                          : _mm512_setzero_ps();
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

inline void pack_rows(std::size_t rows, const Bf16Depth& depth, const float* from,
                      std::size_t stride, Bf16Pair* to) {
  for (std::size_t row = 0; row < rows; ++row, from += stride, to += depth.pairs) {
    for (std::size_t pair = 0; pair < depth.pairs; pair += k_panel) {
      _mm512_mask_storeu_epi32(to + pair, first_lanes(depth.pairs - pair),
                               load_pairs(from + 2 * pair, left_of(depth, pair)));
    }
  }
}

inline void pack_turned(const Bf16Depth& depth, const float* from, std::size_t stride,
                        Bf16Pair* to) {
  for (std::size_t first = 0; first < depth.pairs; first += k_panel) {
    Pairs16 rows[k_panel];
    for (std::size_t row = 0; row < k_panel; ++row) {
      rows[row] = (Pairs16)load_pairs(from + row * stride + 2 * first, left_of(depth, first));
    }
    transpose(rows);
    for (std::size_t i = 0; i < k_panel && first + i < depth.pairs; ++i, to += k_panel) {
      _mm512_storeu_si512(to, (__m512i)rows[i]);
    }
  }
}

/// Pairs of two neighbouring rows: `lanes` columns, 16 at most.
inline __m512i load_column_pairs(const Bf16Depth& depth, std::size_t pair, __mmask16 lanes,
                                 const float* from, std::size_t stride) {
  const std::size_t left = left_of(depth, pair);
  const __m512 first =
      left > 0 ? _mm512_maskz_loadu_ps(lanes, from + 2 * pair * stride) : _mm512_setzero_ps();
  const __m512 second =
      left > 1 ? _mm512_maskz_loadu_ps(lanes, from + (2 * pair + 1) * stride) : _mm512_setzero_ps();
  return paired(first, second);
}

inline void pack_columns(const Bf16Depth& depth, std::size_t columns, const float* from,
                         std::size_t stride, Bf16Pair* to) {
  for (std::size_t pair = 0; pair < depth.pairs; ++pair, to += columns) {
    for (std::size_t j = 0; j < columns; j += k_panel) {
      const __mmask16 lanes = first_lanes(columns - j);
      _mm512_mask_storeu_epi32(to + j, lanes,
                               load_column_pairs(depth, pair, lanes, from + j, stride));
    }
  }
}

} // namespace
} // namespace trainer
