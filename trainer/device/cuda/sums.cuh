// Sums over a warp, a block and a grid in a fixed order, so that a kernel gives the same bits in
// every run.
#pragma once

#include "trainer/device/cuda/launch.h"

namespace trainer {
namespace {

constexpr int k_warp_lanes = 32;
constexpr int k_threads = 256; ///< Threads of a block.
constexpr int k_warps = k_threads / k_warp_lanes;
constexpr std::size_t k_most_blocks = 1024; ///< About 8 on each of 132 multiprocessors.
constexpr unsigned k_all_lanes = 0xffffffffU;

/// Number of blocks if each thread takes one item at a time, in a grid-stride loop.
inline unsigned blocks_for(std::size_t items, std::size_t a_block = k_threads,
                           std::size_t most = k_most_blocks) {
  const std::size_t blocks = (items + a_block - 1) / a_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

/// Tiles of `each` that cover `all`.
inline unsigned tiles_of(std::size_t all, std::size_t each) {
  return static_cast<unsigned>((all + each - 1) / each);
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

/// The rest of warp_sums(): `Left` values, between lanes `Other` and less apart.
template <int Left, int Other, int N>
__device__ unsigned sums_from(float (&values)[N]) {
  if constexpr (Other == 0) {
    return 0;
  } else if constexpr (Left == 1) {
    values[0] += __shfl_xor_sync(k_all_lanes, values[0], Other);
    return sums_from<1, Other / 2>(values);
  } else {
    constexpr int k_half = Left / 2;
    const bool is_upper = threadIdx.x / Other % 2 != 0;
    DTRAIN_UNROLL
    for (int i = 0; i < k_half; ++i) { // Gives away one half and keeps the other.
      const float given = is_upper ? values[i] : values[i + k_half];
      const float kept = is_upper ? values[i + k_half] : values[i];
      values[i] = kept + __shfl_xor_sync(k_all_lanes, given, Other);
    }
    const unsigned first = sums_from<k_half, Other / 2>(values);
    return is_upper ? first + k_half : first;
  }
}
/// Sums each of N values, a power of two, over the warp, in about N shuffles. Returns the number of
/// the first sum that this lane gets, in values[0]; the next ones follow it. With fewer values than
/// lanes, lanes 32 / N · i and on get sum number i.
template <int N>
__device__ unsigned warp_sums(float (&values)[N]) {
  return sums_from<N, k_warp_lanes / 2>(values);
}

/// The largest value of a warp; no value may be a NaN.
__device__ inline float warp_largest(float value) {
  for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
    const float its = __shfl_xor_sync(k_all_lanes, value, other);
    value = its > value ? its : value;
  }
  return value;
}

/// Sets `value` to the warp's largest value and `which` to the first place of it. No value may be a
/// NaN.
__device__ inline void warp_argmax(float& value, unsigned& which) {
  for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
    const float its = __shfl_xor_sync(k_all_lanes, value, other);
    const unsigned that = __shfl_xor_sync(k_all_lanes, which, other);
    if (its > value || (its == value && that < which)) {
      value = its;
      which = that;
    }
  }
}

/// Replaces each value with its sum over the block's threads. `room`: N values per warp, which must
/// not be written again before the block's next barrier.
template <typename T, int N>
__device__ void block_sums(T (&values)[N], T* room) {
  const unsigned warps = blockDim.x / k_warp_lanes;
  for (int i = 0; i < N; ++i) {
    values[i] = warp_sum(values[i]);
    if (threadIdx.x % k_warp_lanes == 0) {
      room[i * warps + threadIdx.x / k_warp_lanes] = values[i];
    }
  }
  __syncthreads();
  for (int i = 0; i < N; ++i) {
    if (warps == k_warp_lanes) {
      values[i] = warp_sum(room[i * warps + threadIdx.x % k_warp_lanes]);
      continue;
    }
    values[i] = 0;
    for (unsigned warp = 0; warp < warps; ++warp) {
      values[i] += room[i * warps + warp];
    }
  }
}

/// The block's least value, in its first thread. `room`: one value per warp.
__device__ inline double block_least(double value, double* room) {
  const auto less = [](double a, double b) { return a < b ? a : b; };
  for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
    value = less(value, __shfl_xor_sync(k_all_lanes, value, other));
  }
  if (threadIdx.x % k_warp_lanes == 0) {
    room[threadIdx.x / k_warp_lanes] = value;
  }
  __syncthreads();
  for (int warp = 0; threadIdx.x == 0 && warp < k_warps; ++warp) {
    value = less(value, room[warp]);
  }
  return value;
}

/// The block's largest value, in its first thread. `room`: one value per warp.
__device__ inline unsigned block_largest(unsigned value, unsigned* room) {
  const auto larger = [](unsigned a, unsigned b) { return a > b ? a : b; };
  for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
    value = larger(value, __shfl_xor_sync(k_all_lanes, value, other));
  }
  if (threadIdx.x % k_warp_lanes == 0) {
    room[threadIdx.x / k_warp_lanes] = value;
  }
  __syncthreads();
  for (int warp = 0; threadIdx.x == 0 && warp < k_warps; ++warp) {
    value = larger(value, room[warp]);
  }
  return value;
}

/// Whether this block is the last of so many to arrive; it then sees what the others have written
/// before. All threads of a block must call it. `arrived` is 0 before the first and after the last.
__device__ inline bool is_last_block(unsigned* arrived, unsigned blocks, void* room) {
  auto* is_last = static_cast<unsigned*>(room);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    *is_last = atomicInc(arrived, blocks - 1) == blocks - 1 ? 1 : 0;
  }
  __syncthreads();
  const bool answer = *is_last != 0;
  __syncthreads();
  if (answer) {
    __threadfence();
  }
  return answer;
}

/// Replaces each value with its sum over the grid's `parts`, in the block that arrives last;
/// returns whether this is that block. A thread that `has_part` has the values of number `part`.
/// `room` as in block_sums(); `partial`: N values per part.
template <int N>
__device__ bool sums_of_parts(double (&values)[N], bool has_part, unsigned part, unsigned parts,
                              double* room, double* partial, unsigned* arrived) {
  for (int i = 0; has_part && i < N; ++i) {
    partial[i * parts + part] = values[i];
  }
  if (!is_last_block(arrived, gridDim.x, room)) {
    return false;
  }
  for (int i = 0; i < N; ++i) {
    values[i] = 0;
    for (unsigned other = threadIdx.x; other < parts; other += blockDim.x) {
      values[i] += partial[i * parts + other];
    }
  }
  block_sums(values, room);
  return true;
}

/// The same of the grid's threads; `partial`: N values per block.
template <int N>
__device__ bool grid_sums(double (&values)[N], double* room, double* partial, unsigned* arrived) {
  block_sums(values, room);
  return gridDim.x == 1 ||
         sums_of_parts(values, threadIdx.x == 0, blockIdx.x, gridDim.x, room, partial, arrived);
}

} // namespace
} // namespace trainer
