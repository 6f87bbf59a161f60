#include "trainer/collectives/wire.h"

#include <algorithm>
#include <array>

#include "trainer/collectives/reduce.h"
#include "trainer/device/halves.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace trainer {
namespace {

template <typename Type>
struct Portable {
  static void narrow(std::uint16_t* to, const float* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = Type::narrow(from[i]);
    }
  }

  static void widen(float* to, const std::uint16_t* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = Type::widen(from[i]);
    }
  }

  static void add(std::uint16_t* to, const std::uint16_t* arrived, const float* own,
                  std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = Type::narrow(Type::widen(arrived[i]) + own[i]);
    }
  }

  static void sum_to_all(std::span<float* const> out, std::span<const float* const> in,
                         std::size_t count) {
    sum_from(out, in, 0, count);
  }

  static void sum_from(std::span<float* const> out, std::span<const float* const> in,
                       std::size_t begin, std::size_t count) {
    for (std::size_t i = begin; i < count; ++i) {
      std::uint16_t sum = Type::narrow(in[0][i]);
      for (std::size_t k = 1; k < in.size(); ++k) {
        sum = Type::narrow(Type::widen(sum) + in[k][i]);
      }
      for (float* to : out) {
        to[i] = Type::widen(sum);
      }
    }
  }

  static constexpr WireKernels k_table = {narrow, widen, add, sum_to_all};
};

#if defined(__x86_64__)

#define DTRAIN_AVX2 __attribute__((target("avx2,f16c")))

constexpr std::size_t k_wire_lanes = 8;

struct Bf16Avx2 {
  using Scalar = Bf16;

  DTRAIN_AVX2 static __m128i narrow(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m256i halves = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_packus_epi32(halves, halves); // Within each half of the lanes.
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0b1000));
  }

  DTRAIN_AVX2 static __m256 widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

struct Fp16F16c {
  using Scalar = Fp16;

  DTRAIN_AVX2 static __m128i narrow(__m256 values) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    const __m256 size = _mm256_andnot_ps(sign, values);
    const __m256 infinity =
        _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(k_float_infinity)));
    const __m256 largest = _mm256_set1_ps(65504.0F);
    // For a NaN, min_ps returns the second operand.
    const __m256 cut = _mm256_min_ps(largest, size);
    const __m256 kept = _mm256_blendv_ps(cut, size, _mm256_cmp_ps(size, infinity, _CMP_EQ_OQ));
    return _mm256_cvtps_ph(_mm256_or_ps(kept, _mm256_and_ps(sign, values)),
                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  DTRAIN_AVX2 static __m256 widen(__m128i halves) { return _mm256_cvtph_ps(halves); }
};

template <typename Type>
struct Vector {
  using Tail = Portable<typename Type::Scalar>;

  DTRAIN_AVX2 static __m128i load(const std::uint16_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  DTRAIN_AVX2 static void store(std::uint16_t* to, __m128i halves) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }

  DTRAIN_AVX2 static void narrow(std::uint16_t* to, const float* from, std::size_t count) {
    std::size_t i = 0;
    for (; i + k_wire_lanes <= count; i += k_wire_lanes) {
      store(to + i, Type::narrow(_mm256_loadu_ps(from + i)));
    }
    Tail::narrow(to + i, from + i, count - i);
  }

  DTRAIN_AVX2 static void widen(float* to, const std::uint16_t* from, std::size_t count) {
    std::size_t i = 0;
    for (; i + k_wire_lanes <= count; i += k_wire_lanes) {
      _mm256_storeu_ps(to + i, Type::widen(load(from + i)));
    }
    Tail::widen(to + i, from + i, count - i);
  }

  DTRAIN_AVX2 static void add(std::uint16_t* to, const std::uint16_t* arrived, const float* own,
                              std::size_t count) {
    std::size_t i = 0;
    for (; i + k_wire_lanes <= count; i += k_wire_lanes) {
      const __m256 sum = _mm256_add_ps(Type::widen(load(arrived + i)), _mm256_loadu_ps(own + i));
      store(to + i, Type::narrow(sum));
    }
    Tail::add(to + i, arrived + i, own + i, count - i);
  }

  DTRAIN_AVX2 static void sum_to_all(std::span<float* const> out, std::span<const float* const> in,
                                     std::size_t count) {
    std::size_t i = 0;
    for (; i + k_wire_lanes <= count; i += k_wire_lanes) {
      __m256 sum = Type::widen(Type::narrow(_mm256_loadu_ps(in[0] + i)));
      for (std::size_t k = 1; k < in.size(); ++k) {
        sum = Type::widen(Type::narrow(_mm256_add_ps(sum, _mm256_loadu_ps(in[k] + i))));
      }
      for (float* to : out) {
        _mm256_storeu_ps(to + i, sum);
      }
    }
    Tail::sum_from(out, in, i, count);
  }

  static constexpr WireKernels k_table = {narrow, widen, add, sum_to_all};
};

bool has_vectors() {
  static const bool has = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    // Clang 14's __builtin_cpu_supports() does not know F16C.
    return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
  }();
  return has;
}

#endif

} // namespace

const char* wire_type_name(WireType type) {
  return type == WireType::bf16 ? "bf16" : type == WireType::fp16 ? "fp16" : "fp32";
}

std::optional<WireType> parse_wire_type(std::string_view name) {
  for (const WireType type : {WireType::fp32, WireType::bf16, WireType::fp16}) {
    if (name == wire_type_name(type)) {
      return type;
    }
  }
  return std::nullopt;
}

DType dtype_of(WireType type) {
  return type == WireType::fp32 ? DType::f32 : type == WireType::bf16 ? DType::bf16 : DType::f16;
}

std::size_t wire_size(WireType type) {
  return type == WireType::fp32 ? sizeof(float) : sizeof(std::uint16_t);
}

void sum_to_all(WireType type, std::span<float* const> out, std::span<const float* const> in,
                std::size_t count) {
  type == WireType::fp32 ? sum_to_all(out, in, count)
                         : wire_kernels(type).sum_to_all(out, in, count);
}

void add_halves(WireType type, std::uint16_t* to, const std::uint16_t* arrived,
                const std::uint16_t* own, std::size_t count) {
  const WireKernels& kernels = wire_kernels(type);
  std::array<float, 2048> block; // Fits the L1 cache.
  for (std::size_t i = 0; i < count; i += block.size()) {
    const std::size_t size = std::min(count - i, block.size());
    kernels.widen(block.data(), own + i, size);
    kernels.add(to + i, arrived + i, block.data(), size);
  }
}

const WireKernels& portable_wire_kernels(WireType type) {
  return type == WireType::bf16 ? Portable<Bf16>::k_table : Portable<Fp16>::k_table;
}

const WireKernels& wire_kernels(WireType type) {
#if defined(__x86_64__)
  if (has_vectors()) {
    return type == WireType::bf16 ? Vector<Bf16Avx2>::k_table : Vector<Fp16F16c>::k_table;
  }
#endif
  return portable_wire_kernels(type);
}

} // namespace trainer
