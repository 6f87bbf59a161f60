// AVX-512. This file alone is compiled for it (see trainer/CMakeLists.txt).
#include "trainer/device/cpu/vector.h"

#if defined(__AVX512F__)

#include <immintrin.h>

namespace trainer {
namespace {

struct Avx512 {
  using Floats = __m512;
  using Mask = __mmask16;
  static constexpr std::size_t k_lanes = 16;
  static constexpr std::size_t k_tile_rows = 12; // 24 sums, 2 of B, 1 of A: 27 of 32 registers

  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static Floats all(float x) { return _mm512_set1_ps(x); }
  static Floats add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
  static Floats multiply(Floats x, Floats y) { return _mm512_mul_ps(x, y); }
  static Floats multiply_add(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(x, y, z); }
  static Floats multiply_subtract(Floats x, Floats y, Floats z) { return _mm512_fmsub_ps(x, y, z); }
  static Floats divide(Floats x, Floats y) { return _mm512_div_ps(x, y); }
  static Floats root(Floats x) { return _mm512_sqrt_ps(x); }
  static Floats larger(Floats x, Floats y) { return _mm512_max_ps(x, y); }
  static Floats where_positive(Floats x, Floats y) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), y);
  }
  static Mask is_not_at_most(Floats x, Floats y) { return _mm512_cmp_ps_mask(x, y, _CMP_NLE_UQ); }
  static Mask is_equal(Floats x, Floats y) { return _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ); }
  static Floats choose(Mask mask, Floats yes, Floats no) {
    return _mm512_mask_blend_ps(mask, no, yes);
  }
  static void store_bytes(std::uint8_t* to, Floats x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
  }
  static Floats floats_of(const std::uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  }
};

} // namespace

const CpuKernels* avx512_kernels() {
  static constexpr CpuKernels kernels = vector_kernels<Avx512>("avx512");
  return __builtin_cpu_supports("avx512f") ? &kernels : nullptr;
}

} // namespace trainer

#else

namespace trainer {
const CpuKernels* avx512_kernels() { return nullptr; }
} // namespace trainer

#endif
