// Rows that LayerNorm's kernels share out to warps and blocks, and keep in registers.
#pragma once

#include <type_traits>

#include "trainer/device/cuda/fours.cuh"

namespace trainer {
namespace {

constexpr int k_eight = 8; ///< 16 bytes of bf16.

/// `Kept` packs of a row in the registers of each thread that shares it; zeros past the row's end.
template <int N, int Kept>
struct KeptRow {
  Pack<float, N> at[Kept];

  /// The column where pack k begins.
  __device__ static std::size_t column(const Share& share, int k) {
    return N * (share.first + static_cast<std::size_t>(k) * share.step);
  }
  template <typename Value>
  __device__ static KeptRow of(const Share& share, const Value* row, std::size_t width) {
    KeptRow kept = {};
    for (int k = 0; k < Kept; ++k) {
      if (column(share, k) < width) {
        kept.at[k] = load_floats<N>(row + column(share, k));
      }
    }
    return kept;
  }
  /// Calls work(k, column) for each pack within the row.
  template <typename Work>
  __device__ static void each(const Share& share, std::size_t width, const Work& work) {
    for (int k = 0; k < Kept; ++k) {
      if (column(share, k) < width) {
        work(k, column(share, k));
      }
    }
  }
  template <typename Value>
  __device__ void write(const Share& share, std::size_t width, Value* row) const {
    each(share, width, [&](int k, std::size_t at_column) { store_floats(at[k], row + at_column); });
  }
  /// The same, plus `before` unless that is null.
  template <typename Value>
  __device__ void write_sum(const Share& share, std::size_t width, const Value* before,
                            Value* row) const {
    each(share, width, [&](int k, std::size_t at_column) {
      Pack<float, N> sum = at[k];
      if (before != nullptr) {
        const Pack<float, N> more = load_floats<N>(before + at_column);
        for (int i = 0; i < N; ++i) {
          sum.at[i] += more.at[i];
        }
      }
      store_floats(sum, row + at_column);
    });
  }
};

__device__ inline Share of_warp() { return {threadIdx.x % k_warp_lanes, k_warp_lanes}; }
__device__ inline std::size_t first_of_warps() {
  return std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
}
__device__ inline std::size_t all_warps() { return std::size_t{gridDim.x} * k_warps; }

/// Calls act(eights per lane) to launch the kernel for rows of which a lane keeps at most `Most`
/// eights; calls otherwise() if a row is longer or not aligned.
template <int Most, typename Act, typename Otherwise, typename... T>
int by_kept(std::size_t width, const Act& act, const Otherwise& otherwise, const T*... arrays) {
  constexpr std::size_t k_pass = k_eight * k_warp_lanes;
  if (width % k_eight != 0 || width > Most * k_pass || !are_packs<k_eight>(arrays...)) {
    return otherwise();
  }
  switch ((width + k_pass - 1) / k_pass) {
  case 1:
    return act(std::integral_constant<int, 1>{});
  case 2:
    return act(std::integral_constant<int, 2>{});
  case 3:
    return act(std::integral_constant<int, 3>{});
  case 4:
    return act(std::integral_constant<int, 4>{});
  default:
    return act(std::integral_constant<int, Most>{});
  }
}

} // namespace
} // namespace trainer
