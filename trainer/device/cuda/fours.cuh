// Vector loads and stores: a thread moves four neighbouring values with one instruction if all
// arrays are aligned to four values, and the remainder one by one. A multiprocessor then has some
// 32 KB in flight, as memory of 3 TB/s and 700 ns latency needs; types of few bytes are loaded
// several fours ahead.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trainer/device/cuda/products/mma.cuh"
#include "trainer/device/cuda/sums.cuh"
#include "trainer/device/typed_pointer.h"
#include "trainer/on_both.h"

namespace trainer {
namespace {

constexpr std::size_t k_four = 4;

/// Values of 16 bytes, the most that a thread moves with one instruction.
template <typename Value>
constexpr int k_pack = 16 / sizeof(Value);

/// N neighbouring values in registers.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <int N, typename T>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <typename T, int N>
__device__ void store(const Pack<T, N>& values, T* to) {
  *reinterpret_cast<Pack<T, N>*>(to) = values;
}
template <typename T, int N>
__device__ void store(const Pack<T, N>& /*values*/, const T* /*to*/) {} // Read-only.

/// Loads N values of any type as float32. They are aligned to N values, or to 16 bytes.
template <int N, typename T>
__device__ Pack<float, N> load_floats(const T* from) {
  constexpr int k_at_once = N < k_pack<T> ? N : k_pack<T>;
  Pack<float, N> floats;
  DTRAIN_UNROLL
  for (int first = 0; first < N; first += k_at_once) {
    const Pack<T, k_at_once> values = load<k_at_once>(from + first);
    DTRAIN_UNROLL
    for (int i = 0; i < k_at_once; ++i) {
      floats.at[first + i] = values.at[i];
    }
  }
  return floats;
}
template <typename T, int N>
__device__ void store_floats(const Pack<float, N>& floats, T* to) {
  if constexpr (std::is_same_v<T, Bf16Value> && N % 2 == 0) { // Two in one instruction.
    Pack<std::uint32_t, N / 2> values;
    DTRAIN_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      values.at[i] = pack_bf16(floats.at[2 * i], floats.at[2 * i + 1]);
    }
    store(values, reinterpret_cast<std::uint32_t*>(to));
  } else {
    Pack<T, N> values;
    DTRAIN_UNROLL
    for (int i = 0; i < N; ++i) {
      values.at[i] = floats.at[i];
    }
    store(values, to);
  }
}

/// The bits of the largest magnitude of a pack, or `largest`. Bits of magnitudes are in the order
/// of the magnitudes, and those of NaNs behind all others.
template <typename Value, int N>
__device__ unsigned larger_of(const Pack<Value, N>& values, unsigned largest) {
  DTRAIN_UNROLL
  for (int i = 0; i < N; ++i) {
    const unsigned size = float_bits(values.at[i]) & k_float_size;
    largest = size > largest ? size : largest;
  }
  return largest;
}

/// Calls act with a value of this type, to launch the kernel for it.
template <typename Act>
int by_type(DType type, const Act& act) {
  return type == DType::bf16 ? act(Bf16Value{}) : act(float{});
}

/// Whether all arrays are aligned to N values.
template <std::size_t N, typename... T>
DTRAIN_ON_BOTH bool are_packs(const T*... arrays) {
  return ((reinterpret_cast<std::uintptr_t>(arrays) % (N * sizeof(T)) == 0) && ...);
}
template <typename... T>
DTRAIN_ON_BOTH bool are_fours(const T*... arrays) {
  return are_packs<k_four>(arrays...);
}

/// Number of blocks if each thread takes one four at a time, in a grid-stride loop.
inline unsigned blocks_of_fours(std::size_t values, std::size_t most = 8 * k_most_blocks) {
  return blocks_for(values, k_four * k_threads, most);
}

constexpr int k_row_threads = 512; ///< Most threads of a block that processes rows.
constexpr std::size_t k_row_warps = k_row_threads / k_warp_lanes;

/// Threads of a block that processes a row of `width`, each keeping `kept` fours of it.
inline unsigned threads_of_row(std::size_t width, std::size_t kept = 1) {
  return blocks_for(width, k_four * kept * k_warp_lanes, k_row_warps) * k_warp_lanes;
}
inline unsigned blocks_of_rows(std::size_t rows) { return blocks_for(rows, 1, 8 * k_most_blocks); }

/// One participant's share of a range: number `first`, then every `step`.
struct Share {
  std::size_t first;
  std::size_t step;
};
__device__ inline Share of_grid() { return {first_item(), all_threads()}; }
__device__ inline Share of_block() { return {threadIdx.x, blockDim.x}; }

template <typename T, int N, int Ahead>
struct Packs {
  Pack<T, N> at[Ahead];
};

template <int N, int Ahead, typename T>
__device__ Packs<std::remove_const_t<T>, N, Ahead> load_ahead(std::size_t i, std::size_t last,
                                                              std::size_t step, T* from) {
  Packs<std::remove_const_t<T>, N, Ahead> packs = {};
  for (int k = 0; k < Ahead; ++k) {
    if (i + k * step < last) {
      packs.at[k] = load<N>(from + (i + k * step) * N);
    }
  }
  return packs;
}

/// Calls work(index, a pack of each array…) for values [begin, begin + count · N).
template <int N, int Ahead, typename Work, typename... T>
__device__ void walk(Share share, std::size_t begin, std::size_t count, const Work& work,
                     T*... arrays) {
  for (std::size_t i = share.first; i < count; i += Ahead * share.step) {
    [&](Packs<std::remove_const_t<T>, N, Ahead>... packs) {
      for (int k = 0; k < Ahead; ++k) {
        const std::size_t at = i + k * share.step;
        if (at < count) {
          work(begin + at * N, packs.at[k]...);
          (store(packs.at[k], arrays + begin + at * N), ...);
        }
      }
    }(load_ahead<N, Ahead>(i, count, share.step, arrays + begin)...);
  }
}

/// Calls work(index, a pack of each array…) for all n values: [&]<int N>(std::size_t i,
/// Pack<float, N>& x…). Const arrays are only read, others are also written. N is 1 unless
/// `by_fours`.
template <typename Work, typename... T>
__device__ void each_pack(Share share, std::size_t n, bool by_fours, const Work& work,
                          T*... arrays) {
  constexpr std::size_t k_bytes = ((k_four * sizeof(T)) + ...);
  constexpr int k_ahead = k_bytes <= 24 ? 4 : k_bytes <= 32 ? 2 : 1;
  std::size_t done = 0;
  if (by_fours && are_fours(arrays...)) {
    walk<k_four, k_ahead>(share, 0, n / k_four, work, arrays...);
    done = n / k_four * k_four;
  }
  walk<1, 1>(share, done, n - done, work, arrays...);
}

/// Calls work(a value of each array…) for all n: [&](float g, float& p).
template <typename Work, typename... T>
__device__ void each(Share share, std::size_t n, const Work& work, T*... arrays) {
  each_pack(
      share, n, true,
      [&]<int N, typename... V>(std::size_t /*i*/, Pack<V, N> & ... packs) {
        for (int k = 0; k < N; ++k) {
          work(packs.at[k]...);
        }
      },
      arrays...);
}

} // namespace
} // namespace trainer
