// AVX2 and FMA. This file alone is compiled for them (see trainer/CMakeLists.txt).
#include "trainer/device/cpu/vector.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

namespace trainer {
namespace {

struct Avx2 {
  using Floats = __m256;
  using Mask = __m256;
  static constexpr std::size_t k_lanes = 8;
  static constexpr std::size_t k_tile_rows = 6; // 12 sums, 2 of B, 1 of A: 15 of 16 registers

  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
  static Floats all(float x) { return _mm256_set1_ps(x); }
  static Floats add(Floats x, Floats y) { return _mm256_add_ps(x, y); }
  static Floats multiply(Floats x, Floats y) { return _mm256_mul_ps(x, y); }
  static Floats multiply_add(Floats x, Floats y, Floats z) { return _mm256_fmadd_ps(x, y, z); }
  static Floats multiply_subtract(Floats x, Floats y, Floats z) { return _mm256_fmsub_ps(x, y, z); }
  static Floats divide(Floats x, Floats y) { return _mm256_div_ps(x, y); }
  static Floats root(Floats x) { return _mm256_sqrt_ps(x); }
  static Floats larger(Floats x, Floats y) { return _mm256_max_ps(x, y); }
  static Floats where_positive(Floats x, Floats y) {
    return _mm256_and_ps(y, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
  }
  static Mask is_not_at_most(Floats x, Floats y) { return _mm256_cmp_ps(x, y, _CMP_NLE_UQ); }
  static Mask is_equal(Floats x, Floats y) { return _mm256_cmp_ps(x, y, _CMP_EQ_OQ); }
  static Floats choose(Mask mask, Floats yes, Floats no) { return _mm256_blendv_ps(no, yes, mask); }
  static void store_bytes(std::uint8_t* to, Floats x) {
    const __m256i whole = _mm256_cvtps_epi32(x);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
  }
  static Floats floats_of(const std::uint8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  }
};

} // namespace

const CpuKernels* avx2_kernels() {
  static constexpr CpuKernels kernels = vector_kernels<Avx2>("avx2");
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels : nullptr;
}

} // namespace trainer

#else

namespace trainer {
const CpuKernels* avx2_kernels() { return nullptr; }
} // namespace trainer

#endif
