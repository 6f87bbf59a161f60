#include "trainer/collectives/reduce.h"

#include <algorithm>

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

__attribute__((target("avx2"))) void copy_avx2(float* into, const float* from, std::size_t count) {
  std::size_t i = 0;
  for (; i + k_strip <= count; i += k_strip) {
    for (std::size_t j = i; j < i + k_strip; j += k_lanes) {
      _mm256_storeu_ps(into + j, _mm256_loadu_ps(from + j));
    }
  }
  std::copy_n(from + i, count - i, into + i);
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

void copy(float* into, const float* from, std::size_t count) {
#if defined(__x86_64__)
  if (has_avx2()) {
    copy_avx2(into, from, count);
    return;
  }
#endif
  std::copy_n(from, count, into);
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

} // namespace trainer
