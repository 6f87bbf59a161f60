// Dropout within kernels: one keep bit per value, in words (text_kernels.h).
#pragma once

#include "trainer/device/cuda/fours.cuh"
#include "trainer/device/text_kernels.h"

namespace trainer {
namespace {

/// The factor of value `i` of a line whose words begin at `word`.
__device__ inline float drop_factor(const Dropped& dropped, std::size_t word, std::size_t i) {
  if (dropped.keep == nullptr) {
    return 1;
  }
  const unsigned bits = dropped.keep[word + i / k_keep_bits];
  return (bits >> i % k_keep_bits & 1U) != 0 ? dropped.scale : 0.0F;
}

/// The same of N values from value `i` on, all in one word.
template <int N>
__device__ Pack<float, N> drop_factors(const Dropped& dropped, std::size_t word, std::size_t i) {
  const bool drops = dropped.keep != nullptr;
  const unsigned bits = drops ? dropped.keep[word + i / k_keep_bits] >> i % k_keep_bits : ~0U;
  const float scale = drops ? dropped.scale : 1.0F;
  Pack<float, N> factors;
  for (int k = 0; k < N; ++k) {
    factors.at[k] = (bits >> k & 1U) != 0 ? scale : 0.0F;
  }
  return factors;
}

} // namespace
} // namespace trainer
