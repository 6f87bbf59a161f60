// Dropout within kernels: one keep bit per value, in words (text_kernels.h).
#pragma once

#include "trainer/device/cuda/launch.h"
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

} // namespace
} // namespace trainer
