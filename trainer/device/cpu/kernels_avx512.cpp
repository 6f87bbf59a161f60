// AVX-512. This file alone is compiled for it (see trainer/CMakeLists.txt).
#include "trainer/device/cpu/vector.h"

#if defined(__AVX512F__)

#include <immintrin.h>

namespace trainer {
namespace {

using Floats16 [[gnu::vector_size(64)]] = float;
using Bytes16 [[gnu::vector_size(16)]] = std::uint8_t;

struct Avx512 : Lanes<Floats16, Bytes16> {
  static Floats16 root(Floats16 x) { return _mm512_sqrt_ps(x); }
  static Longs product(Longs a, Longs b) { return (Longs)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
  static void store_bytes(std::uint8_t* to, Floats16 x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
  }
  static Floats16 floats_of(const std::uint8_t* from) {
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
