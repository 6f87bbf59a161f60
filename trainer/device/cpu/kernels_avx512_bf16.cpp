// AVX-512's bf16. This file alone is compiled for it (see trainer/CMakeLists.txt); nothing here
// calls an inline function of a library: see vector.h.
#include "trainer/device/cpu/bf16_products.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace trainer {
namespace {

constexpr std::size_t k_tile_rows =
    12; ///< By 2 vectors of B, with these and A: 27 of 32 registers.
constexpr std::size_t k_rows_a_base = 4; ///< Rows that one address reaches.

__mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= k_panel ? 0xffffU : (1U << count) - 1U);
}

/// Pairs of 16 first and 16 second values.
__m512i paired(__m512 first, __m512 second) {
  const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(first));
  const __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(second));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/// Pairs of the first 32 values, of which there are `left`, or fewer.
__m512i load_pairs(const float* from, std::size_t left) {
  const __m512 low = _mm512_maskz_loadu_ps(first_lanes(left), from);
  const __m512 high = left > k_panel
                          ? _mm512_maskz_loadu_ps(first_lanes(left - k_panel), from + k_panel)
                          : _mm512_setzero_ps();
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

void pack_rows(std::size_t rows, std::size_t k, const float* from, std::size_t stride,
               Bf16Pair* to) {
  const std::size_t pairs = (k + 1) / 2;
  for (std::size_t row = 0; row < rows; ++row, from += stride, to += pairs) {
    for (std::size_t i = 0; i < k; i += 2 * k_panel) {
      _mm512_mask_storeu_epi32(to + i / 2, first_lanes((k - i + 1) / 2),
                               load_pairs(from + i, k - i));
    }
  }
}

/// Column j of the sixteen rows becomes row j.
void transpose(__m512i (&x)[k_panel]) {
  __m512i y[k_panel];
  for (std::size_t i = 0; i < k_panel; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (std::size_t i = 0; i < k_panel; i += 4) { // Then x[i + j]: columns 4 · lane + j, rows i …
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  constexpr int k_even = 0x88; // Lanes.
  constexpr int k_odd = 0xdd;
  for (std::size_t j = 0; j < 4; ++j) {
    const __m512i even = _mm512_shuffle_i32x4(x[j], x[j + 4], k_even);
    const __m512i even2 = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], k_even);
    const __m512i odd = _mm512_shuffle_i32x4(x[j], x[j + 4], k_odd);
    const __m512i odd2 = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], k_odd);
    x[j] = _mm512_shuffle_i32x4(even, even2, k_even);
    x[j + 8] = _mm512_shuffle_i32x4(even, even2, k_odd);
    x[j + 4] = _mm512_shuffle_i32x4(odd, odd2, k_even);
    x[j + 12] = _mm512_shuffle_i32x4(odd, odd2, k_odd);
  }
}

void pack_turned(std::size_t k, const float* from, std::size_t stride, Bf16Pair* to) {
  for (std::size_t i = 0; i < k; i += 2 * k_panel) {
    __m512i rows[k_panel];
    for (std::size_t row = 0; row < k_panel; ++row) {
      rows[row] = load_pairs(from + row * stride + i, k - i);
    }
    transpose(rows);
    for (std::size_t pair = 0; pair < k_panel && i + 2 * pair < k; ++pair, to += k_panel) {
      _mm512_storeu_si512(to, rows[pair]);
    }
  }
}

void pack_columns(std::size_t k, std::size_t columns, const float* from, std::size_t stride,
                  Bf16Pair* to) {
  for (std::size_t i = 0; i < k; i += 2, from += 2 * stride, to += columns) {
    for (std::size_t j = 0; j < columns; j += k_panel) {
      const __mmask16 lanes = first_lanes(columns - j);
      const __m512 first = _mm512_maskz_loadu_ps(lanes, from + j);
      const __m512 second =
          i + 1 < k ? _mm512_maskz_loadu_ps(lanes, from + stride + j) : _mm512_setzero_ps();
      _mm512_mask_storeu_epi32(to + j, lanes, paired(first, second));
    }
  }
}

template <std::size_t Rows, std::size_t Panels>
inline void multiply_tile(const Bf16Strip& s, std::size_t row) {
  __m512 sum[Rows][Panels];
  float* const c = s.c + row * s.c_row;
  for (std::size_t i = 0; i < Rows; ++i) {
    for (std::size_t j = 0; j < Panels; ++j) {
      sum[i][j] =
          s.accumulate ? _mm512_loadu_ps(c + i * s.c_row + j * s.c_panel) : _mm512_setzero_ps();
    }
  }
  const Bf16Pair* a[(Rows + k_rows_a_base - 1) / k_rows_a_base];
  for (std::size_t i = 0; i < Rows; i += k_rows_a_base) {
    a[i / k_rows_a_base] = s.a + (row + i) * s.a_row;
  }
  const Bf16Pair* b = s.b;
  for (std::size_t pair = 0; pair < s.pairs; ++pair, b += k_panel) {
    __m512bh right[Panels];
    for (std::size_t j = 0; j < Panels; ++j) {
      right[j] = (__m512bh)_mm512_loadu_si512(b + j * s.pairs * k_panel);
    }
    for (std::size_t i = 0; i < Rows; ++i) {
      const auto left = (__m512bh)_mm512_set1_epi32(
          static_cast<int>(a[i / k_rows_a_base][i % k_rows_a_base * s.a_row]));
      for (std::size_t j = 0; j < Panels; ++j) {
        sum[i][j] = _mm512_dpbf16_ps(sum[i][j], right[j], left);
      }
    }
    for (std::size_t i = 0; i < Rows; i += k_rows_a_base) {
      a[i / k_rows_a_base] += s.a_pair;
    }
  }
  for (std::size_t i = 0; i < Rows; ++i) {
    for (std::size_t j = 0; j < Panels; ++j) {
      _mm512_storeu_ps(c + i * s.c_row + j * s.c_panel, sum[i][j]);
    }
  }
}

/// Of fewer rows than a whole tile has.
template <std::size_t Rows, std::size_t Panels>
inline void multiply_rest(const Bf16Strip& s, std::size_t row) {
  if constexpr (Rows > 0) {
    if (s.m - row == Rows) {
      multiply_tile<Rows, Panels>(s, row);
    } else {
      multiply_rest<Rows - 1, Panels>(s, row);
    }
  }
}

template <std::size_t Panels>
inline void multiply_rows(const Bf16Strip& s) {
  std::size_t row = 0;
  for (; row + k_tile_rows <= s.m; row += k_tile_rows) {
    multiply_tile<k_tile_rows, Panels>(s, row);
  }
  multiply_rest<k_tile_rows - 1, Panels>(s, row);
}

void multiply(const Bf16Strip& strip) {
  strip.panels == 1 ? multiply_rows<1>(strip) : multiply_rows<2>(strip);
}

} // namespace

const Bf16Instructions* avx512_bf16() {
  static constexpr Bf16Instructions instructions = {pack_rows, pack_columns, pack_turned, multiply};
  return __builtin_cpu_supports("avx512bf16") ? &instructions : nullptr;
}

} // namespace trainer

#else

namespace trainer {
const Bf16Instructions* avx512_bf16() { return nullptr; }
} // namespace trainer

#endif
