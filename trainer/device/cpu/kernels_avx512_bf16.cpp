// AVX-512's bf16, VDPBF16PS. This file is compiled for it (see trainer/CMakeLists.txt); nothing
// here calls an inline function of a library: see vector.h.
#if defined(__AVX512BF16__)

#include "trainer/device/cpu/bf16_packing.h"

namespace trainer {
namespace {

constexpr std::size_t k_tile_rows =
    12; ///< By 2 vectors of B, with these and A: 27 of 32 registers.
constexpr std::size_t k_rows_a_base = 4; ///< Rows reached from one base address.

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

/// For fewer rows than a whole tile has.
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
  static constexpr Bf16Instructions instructions = {
      1, true, pack_rows, pack_columns, pack_columns, pack_turned, multiply};
  return __builtin_cpu_supports("avx512bf16") ? &instructions : nullptr;
}

} // namespace trainer

#else

namespace trainer {
const Bf16Instructions* avx512_bf16() { return nullptr; }
} // namespace trainer

#endif
