// Sums over a warp and over a block, in an order that is always the same: so a kernel gives the
// same bits whenever it runs.
#pragma once

#include "trainer/device/cuda/launch.h"

namespace trainer {
namespace {

constexpr int k_warp_lanes = 32;
constexpr int k_threads = 256; ///< Of a block.
constexpr int k_warps = k_threads / k_warp_lanes;
constexpr std::size_t k_most_blocks = k_cuda_partials / 2;
constexpr unsigned k_all_lanes = 0xffffffffU;

/// Blocks of threads that take an item each, and go on to the next where there are more.
inline unsigned blocks_for(std::size_t items, std::size_t a_block = k_threads) {
  const std::size_t blocks = (items + a_block - 1) / a_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > k_most_blocks ? k_most_blocks : blocks);
}

__device__ inline std::size_t first_item() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t all_threads() { return std::size_t{gridDim.x} * blockDim.x; }

template <typename T>
__device__ T warp_sum(T value) {
  for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
    value += __shfl_xor_sync(k_all_lanes, value, other);
  }
  return value;
}

/// None of which is a NaN.
__device__ inline float warp_largest(float value) {
  for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
    const float its = __shfl_xor_sync(k_all_lanes, value, other);
    value = its > value ? its : value;
  }
  return value;
}

/// Of k_threads threads; `room` holds k_warps values that nobody else uses meanwhile.
__device__ inline double block_sum(double value, double* room) {
  value = warp_sum(value);
  if (threadIdx.x % k_warp_lanes == 0) {
    room[threadIdx.x / k_warp_lanes] = value;
  }
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < k_warps; ++warp) {
    sum += room[warp];
  }
  __syncthreads();
  return sum;
}

/// Of what blocks have left, by the lanes of one warp.
__device__ inline double sum_of_partials(const double* partial, unsigned count) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += k_warp_lanes) {
    sum += partial[i];
  }
  return warp_sum(sum);
}

} // namespace
} // namespace trainer
