// AVX2 and FMA. This file alone is compiled for them (see trainer/CMakeLists.txt).
#include "trainer/device/cpu/vector.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

namespace trainer {
namespace {

using Floats8 [[gnu::vector_size(32)]] = float;
using Bytes8 [[gnu::vector_size(8)]] = std::uint8_t;

struct Avx2 : Lanes<Floats8, Bytes8> {
  static Floats8 root(Floats8 x) { return _mm256_sqrt_ps(x); }
  static Longs product(Longs a, Longs b) { return (Longs)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
  static void store_bytes(std::uint8_t* to, Floats8 x) {
    const __m256i whole = _mm256_cvtps_epi32(x);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
  }
  static Floats8 floats_of(const std::uint8_t* from) {
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
