#include "trainer/collectives/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainer {
namespace {

void add_into_plain(float* into, const float* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    into[i] = from[i] + into[i];
  }
}

void sum_to_all_plain(std::span<float* const> out, std::span<const float* const> in,
                      std::size_t begin, std::size_t count) {
  for (std::size_t i = begin; i < count; ++i) {
    float sum = in[0][i];
    for (std::size_t k = 1; k < in.size(); ++k) {
      sum += in[k][i];
    }
    for (float* to : out) {
      to[i] = sum;
    }
  }
}

#if defined(__x86_64__)

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

constexpr std::size_t k_lanes = 8;
constexpr std::size_t k_strip = 4 * k_lanes; ///< Floats a turn: four sums in flight.

__attribute__((target("avx2"))) void add_into_avx2(float* into, const float* from,
                                                   std::size_t count) {
  std::size_t i = 0;
  for (; i + k_strip <= count; i += k_strip) {
    for (std::size_t j = i; j < i + k_strip; j += k_lanes) {
      _mm256_storeu_ps(into + j,
                       _mm256_add_ps(_mm256_loadu_ps(from + j), _mm256_loadu_ps(into + j)));
    }
  }
  add_into_plain(into + i, from + i, count - i);
}

__attribute__((target("avx2"))) void copy_avx2(std::byte* into, const std::byte* from,
                                               std::size_t bytes) {
  constexpr std::size_t k_strip_bytes = k_strip * sizeof(float);
  std::size_t i = 0;
  for (; i + k_strip_bytes <= bytes; i += k_strip_bytes) {
    for (std::size_t j = i; j < i + k_strip_bytes; j += sizeof(__m256i)) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(into + j),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + j)));
    }
  }
  std::copy_n(from + i, bytes - i, into + i);
}

__attribute__((target("avx2"))) void
sum_to_all_avx2(std::span<float* const> out, std::span<const float* const> in, std::size_t count) {
  std::size_t i = 0;
  for (; i + k_strip <= count; i += k_strip) {
    __m256 a = _mm256_loadu_ps(in[0] + i);
    __m256 b = _mm256_loadu_ps(in[0] + i + k_lanes);
    __m256 c = _mm256_loadu_ps(in[0] + i + 2 * k_lanes);
    __m256 d = _mm256_loadu_ps(in[0] + i + 3 * k_lanes);
    for (std::size_t k = 1; k < in.size(); ++k) {
      const float* from = in[k] + i;
      a = _mm256_add_ps(a, _mm256_loadu_ps(from));
      b = _mm256_add_ps(b, _mm256_loadu_ps(from + k_lanes));
      c = _mm256_add_ps(c, _mm256_loadu_ps(from + 2 * k_lanes));
      d = _mm256_add_ps(d, _mm256_loadu_ps(from + 3 * k_lanes));
    }
    for (float* to : out) {
      _mm256_storeu_ps(to + i, a);
      _mm256_storeu_ps(to + i + k_lanes, b);
      _mm256_storeu_ps(to + i + 2 * k_lanes, c);
      _mm256_storeu_ps(to + i + 3 * k_lanes, d);
    }
  }
  sum_to_all_plain(out, in, i, count);
}

#endif

} // namespace

void add_into(float* into, const float* from, std::size_t count) {
#if defined(__x86_64__)
  if (has_avx2()) {
    add_into_avx2(into, from, count);
    return;
  }
#endif
  add_into_plain(into, from, count);
}

void copy_bytes(std::byte* into, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (has_avx2()) {
    copy_avx2(into, from, bytes);
    return;
  }
#endif
  std::copy_n(from, bytes, into);
}

void sum_to_all(std::span<float* const> out, std::span<const float* const> in, std::size_t count) {
#if defined(__x86_64__)
  if (has_avx2()) {
    sum_to_all_avx2(out, in, count);
    return;
  }
#endif
  sum_to_all_plain(out, in, 0, count);
}

namespace {

WireType wire_of(DType halves) { return halves == DType::bf16 ? WireType::bf16 : WireType::fp16; }

void copy_to_all(std::span<std::byte* const> out, const std::byte* from, std::size_t bytes) {
  for (std::byte* const to : out) {
    if (to != from) {
      copy_bytes(to, from, bytes);
    }
  }
}

/// Made beside them, as an `out` may be one of `in`.
void sum_halves(WireType type, std::span<std::byte* const> out,
                std::span<const std::byte* const> in, std::size_t count) {
  std::array<std::uint16_t, 2048> sum; // With the block of add_halves(), fits the L1 cache.
  for (std::size_t i = 0; i < count; i += sum.size()) {
    const std::size_t size = std::min(count - i, sum.size());
    const std::size_t at = i * sizeof(std::uint16_t);
    std::memcpy(sum.data(), in[0] + at, size * sizeof(std::uint16_t));
    for (std::size_t k = 1; k < in.size(); ++k) {
      add_halves(type, sum.data(), sum.data(), reinterpret_cast<const std::uint16_t*>(in[k] + at),
                 size);
    }
    for (std::byte* const to : out) {
      std::memcpy(to + at, sum.data(), size * sizeof(std::uint16_t));
    }
  }
}

void sum_doubles(std::span<std::byte* const> out, std::span<const std::byte* const> in,
                 std::size_t count) {
  const auto value = [](const std::byte* from, std::size_t i) {
    return reinterpret_cast<const double*>(from)[i];
  };
  for (std::size_t i = 0; i < count; ++i) {
    double sum = value(in[0], i);
    for (std::size_t k = 1; k < in.size(); ++k) {
      sum += value(in[k], i);
    }
    for (std::byte* const to : out) {
      reinterpret_cast<double*>(to)[i] = sum;
    }
  }
}

} // namespace

void sum_values(DType dtype, WireType wire, std::span<std::byte* const> out,
                std::span<const std::byte* const> in, std::size_t count) {
  if (in.size() == 1 && wire == WireType::fp32) {
    copy_to_all(out, in[0], count * size_of(dtype));
    return;
  }
  switch (dtype) {
  case DType::f32: {
    thread_local std::vector<float*> to;
    thread_local std::vector<const float*> from;
    to.clear();
    from.clear();
    for (std::byte* const one : out) {
      to.push_back(reinterpret_cast<float*>(one));
    }
    for (const std::byte* const one : in) {
      from.push_back(reinterpret_cast<const float*>(one));
    }
    sum_to_all(wire, to, from, count);
    break;
  }
  case DType::bf16:
  case DType::f16:
    sum_halves(wire_of(dtype), out, in, count);
    break;
  case DType::f64:
    sum_doubles(out, in, count);
    break;
  case DType::u8: // check_types() has refused them.
  case DType::i16:
  case DType::i32:
    break;
  }
}

void add_values(DType dtype, std::byte* into, const std::byte* from, std::size_t count) {
  switch (dtype) {
  case DType::f32:
    add_into(reinterpret_cast<float*>(into), reinterpret_cast<const float*>(from), count);
    break;
  case DType::bf16:
  case DType::f16:
    add_halves(wire_of(dtype), reinterpret_cast<std::uint16_t*>(into),
               reinterpret_cast<const std::uint16_t*>(from),
               reinterpret_cast<const std::uint16_t*>(into), count);
    break;
  case DType::f64:
    for (std::size_t i = 0; i < count; ++i) {
      reinterpret_cast<double*>(into)[i] =
          reinterpret_cast<const double*>(from)[i] + reinterpret_cast<double*>(into)[i];
    }
    break;
  case DType::u8:
  case DType::i16:
  case DType::i32:
    break;
  }
}

} // namespace trainer
