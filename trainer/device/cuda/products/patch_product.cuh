// Large matrix products of computed operands, for convolutions: C (m, n) = A (m, k) · B (k, n). A
// line is a row of A or a column of B. An operand is read by patches of four lines and four steps
// along k, which it fetches itself: bounds and divisions are then shared by 16 values, and memory
// is read by 16 bytes. product.cuh has the products of operands that are read value by value.
//
// A thread computes 8 × 8 of C while the operands of the next steps are loaded to registers, and
// put in the other of two halves of shared memory. Cost: 2·m·n·k FLOP; A is read n / T::k_columns
// times, B m / T::k_rows times.
#pragma once

#include <type_traits>
#include <utility>

#include "trainer/device/cuda/products/mma.cuh"
#include "trainer/device/cuda/products/product.cuh"

namespace trainer {
namespace {

constexpr int k_side = 4; ///< Lines, and steps, of a patch.

using Patch = float[k_side][k_side];

/// The tile of a block of C. `Blocks`: that a multiprocessor should hold. Tf32: operands are
/// rounded to it, and multiplied by tensor cores.
template <int Rows, int Columns, int Blocks, bool Tf32>
struct PatchTiling {
  static constexpr int k_rows = Rows;
  static constexpr int k_columns = Columns;
  static constexpr int k_threads = Rows * Columns / (4 * k_side * k_side);
  static constexpr int k_blocks = Blocks;
  static constexpr bool k_is_tf32 = Tf32;
  static constexpr int k_half = (Rows + Columns) * k_deep; ///< Floats.
  static constexpr std::size_t k_room = 2 * k_half * sizeof(float);
};

/// Where four lines from 4 · `patch` on are in shared memory, [step][line]: neighbouring steps, and
/// neighbouring patches along k, are put apart so that a warp's threads use different banks.
template <int Lines>
__device__ int place_of(int patch, int step) {
  static_assert(Lines % 32 == 0);
  return step * Lines + k_side * (patch ^ 2 * (step / k_side ^ step % k_side));
}

/// Loads a thread's patches of so many lines and k_deep steps along k. Neighbouring threads read
/// neighbouring memory.
///
/// `From` has k_along_steps (as Strided has), lines(first): what it precomputes of four lines, and
/// fetch(lines, first step, values[step][line]), with zeros past its ends.
template <typename From, int Lines, int Threads, bool Rounds>
class PatchLoader {
 public:
  __device__ PatchLoader(const From& from, unsigned first_line) : from_(from) {
    DTRAIN_UNROLL
    for (int i = 0; i < k_count; ++i) {
      lines_[i] = from.lines(first_line + k_side * across(i));
    }
  }
  /// Loads the steps from `first` on to registers.
  __device__ void fetch(unsigned first) {
    DTRAIN_UNROLL
    for (int i = 0; i < k_count; ++i) {
      if (is_own(i)) {
        from_.fetch(lines_[i], first + k_side * along_k(i), values_[i]);
      }
    }
  }
  __device__ void put(float* to) const {
    DTRAIN_UNROLL
    for (int i = 0; i < k_count; ++i) {
      if (!is_own(i)) {
        continue;
      }
      DTRAIN_UNROLL
      for (int step = 0; step < k_side; ++step) {
        Pack<float, k_side> values;
        DTRAIN_UNROLL
        for (int line = 0; line < k_side; ++line) {
          values.at[line] = Rounds ? round_to_tf32(values_[i][step][line]) : values_[i][step][line];
        }
        store(values, to + place_of<Lines>(across(i), k_side * along_k(i) + step));
      }
    }
  }

 private:
  static constexpr int k_across = Lines / k_side;
  static constexpr int k_deep_patches = k_deep / k_side;
  static constexpr int k_all = k_across * k_deep_patches;
  static constexpr int k_count = (k_all + Threads - 1) / Threads;
  static_assert(Threads % k_deep_patches == 0);

  __device__ static int own() { return static_cast<int>(threadIdx.x); }
  __device__ static bool is_own(int i) {
    return k_all % Threads == 0 || own() + i * Threads < k_all;
  }
  __device__ static int across(int i) {
    return From::k_along_steps ? (own() + i * Threads) / k_deep_patches
                               : (own() + i * Threads) % k_across;
  }
  __device__ static int along_k(int i) {
    return From::k_along_steps ? own() % k_deep_patches : (own() + i * Threads) / k_across;
  }

  const From& from_;
  decltype(std::declval<const From&>().lines(0)) lines_[k_count];
  Patch values_[k_count];
};

/// What a thread computes of a tile, in float32: 8 × 8 values, four patches half a tile apart. A
/// warp's threads are 8 × 4, so that they read few values of shared memory at once.
template <typename T>
class ThreadSums {
 public:
  static constexpr bool k_rounds = false;

  /// Adds the product of the steps in shared memory.
  __device__ void add(const float* a, const float* b) {
    DTRAIN_UNROLL
    for (int step = 0; step < k_deep; ++step) {
      Pack<float, k_side> of_a[2];
      Pack<float, k_side> of_b[2];
      DTRAIN_UNROLL
      for (int half = 0; half < 2; ++half) {
        of_a[half] =
            load<k_side>(a + place_of<T::k_rows>(y() + half * T::k_rows / (2 * k_side), step));
        of_b[half] = load<k_side>(b + place_of<T::k_columns>(x() + half * k_across, step));
      }
      DTRAIN_UNROLL
      for (int i = 0; i < k_side * k_side * 4; ++i) {
        const int down = i / 32;
        const int row = i / 8 % k_side;
        const int across = i / k_side % 2;
        const int column = i % k_side;
        sums_[down][across][row][column] += of_a[down].at[row] * of_b[across].at[column];
      }
    }
  }
  /// Calls end(patch, row, column), the place in the tile.
  template <typename End>
  __device__ void each(const End& end) const {
    DTRAIN_UNROLL
    for (int i = 0; i < 4; ++i) {
      end(sums_[i / 2][i % 2], k_side * y() + i / 2 * T::k_rows / 2,
          k_side * (x() + i % 2 * k_across));
    }
  }

 private:
  static_assert(T::k_rows % 64 == 0 && T::k_columns % 32 == 0);

  static constexpr int k_across = T::k_columns / (2 * k_side); ///< Threads across,
  static constexpr int k_warps_across = T::k_columns / 32;     ///< and warps.

  __device__ static int y() {
    const int own = static_cast<int>(threadIdx.x);
    return own / 2 % 8 + own / k_warp_lanes / k_warps_across * 8;
  }
  __device__ static int x() {
    const int own = static_cast<int>(threadIdx.x);
    return own % 2 + own / 16 % 2 * 2 + own / k_warp_lanes % k_warps_across * 4;
  }

  Patch sums_[2][2] = {};
};

/// The same with tensor cores, which read operands rounded to TF32 (mma.cuh). A warp computes 64 ×
/// 32, as 2 × 2 × 4 products of 16 × 8 whose lines are four apart: lane 4·g + t reads patches, and
/// of each 32 rows has four from 4·g on, at eight columns from 8·t on.
template <typename T>
class WarpSums {
 public:
  static constexpr bool k_rounds = true;

  __device__ void add(const float* a, const float* b) {
    const int g = lane() / 4;
    const int t = lane() % 4;
    DTRAIN_UNROLL
    for (int first = 0; first < k_deep; first += 8) {
      const auto low_b = load<k_side>(b + place_of<T::k_columns>(column() / k_side + g, first + t));
      const auto high_b =
          load<k_side>(b + place_of<T::k_columns>(column() / k_side + g, first + t + 4));
      DTRAIN_UNROLL
      for (int down = 0; down < 2; ++down) {
        const int patch = row() / k_side + down * 8 + g;
        const auto low_a = load<k_side>(a + place_of<T::k_rows>(patch, first + t));
        const auto high_a = load<k_side>(a + place_of<T::k_rows>(patch, first + t + 4));
        DTRAIN_UNROLL
        for (int i = 0; i < 8; ++i) {
          const int two = i / 4 * 2;
          const float of_a[4] = {low_a.at[two], low_a.at[two + 1], high_a.at[two],
                                 high_a.at[two + 1]};
          add_tf32_mma(sums_[down][i / 4][i % 4], of_a, low_b.at[i % 4], high_b.at[i % 4]);
        }
      }
    }
  }
  template <typename End>
  __device__ void each(const End& end) const {
    DTRAIN_UNROLL
    for (int i = 0; i < 4; ++i) {
      Patch patch;
      DTRAIN_UNROLL
      for (int of = 0; of < k_side * k_side; ++of) {
        const int r = of / k_side;
        patch[r][of % k_side] = sums_[i / 2][r / 2][of % k_side][r % 2 * 2 + i % 2];
      }
      end(patch, row() + i / 2 * 32 + lane() / 4 * k_side,
          column() + (lane() % 4 * 2 + i % 2) * k_side);
    }
  }

 private:
  static_assert(T::k_rows % 64 == 0 && T::k_columns % 32 == 0);

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % k_warp_lanes; }
  /// Where the warp's part of the tile begins.
  __device__ static int row() {
    return static_cast<int>(threadIdx.x) / k_warp_lanes / (T::k_columns / 32) * 64;
  }
  __device__ static int column() {
    return static_cast<int>(threadIdx.x) / k_warp_lanes % (T::k_columns / 32) * 32;
  }

  Sums sums_[2][2][4] = {};
};

/// end(sum, row, column) takes four rows and columns of C.
template <typename T, typename A, typename B, typename End>
__global__ void __launch_bounds__(T::k_threads, T::k_blocks)
    patch_product_kernel(Extent size, A from_a, B from_b, End end) {
  DYNAMIC_SHARED(float, room);
  using Computed = std::conditional_t<T::k_is_tf32, WarpSums<T>, ThreadSums<T>>;
  const unsigned first = blockIdx.z * static_cast<unsigned>(size.split);
  const auto k = static_cast<unsigned>(size.k);
  const unsigned last = k - first < size.split ? k : first + static_cast<unsigned>(size.split);
  const unsigned row = blockIdx.x * T::k_rows;
  const unsigned column = blockIdx.y * T::k_columns;
  PatchLoader<A, T::k_rows, T::k_threads, Computed::k_rounds> load_a(from_a, row);
  PatchLoader<B, T::k_columns, T::k_threads, Computed::k_rounds> load_b(from_b, column);
  constexpr int k_b = T::k_rows * k_deep; // Where B begins in a half of shared memory.
  Computed sums;
  load_a.fetch(first);
  load_b.fetch(first);
  load_a.put(room);
  load_b.put(room + k_b);
  __syncthreads();
  int half = 0;
  for (unsigned step = first + k_deep; step < last; step += k_deep) {
    load_a.fetch(step);
    load_b.fetch(step);
    sums.add(room + half, room + half + k_b);
    half = T::k_half - half;
    load_a.put(room + half);
    load_b.put(room + half + k_b);
    __syncthreads();
  }
  sums.add(room + half, room + half + k_b);
  sums.each([&](const Patch& sum, int down, int across) { end(sum, row + down, column + across); });
}

/// `split` is a multiple of 16, or k: an operand ends at k by itself.
template <typename T, typename A, typename B, typename End>
int put_patch_product(const CudaStreamHandle* stream, std::size_t m, std::size_t n, std::size_t k,
                      std::size_t split, const A& a, const B& b, const End& end) {
  return launch(patch_product_kernel<T, A, B, End>,
                dim3(tiles_of(m, T::k_rows), tiles_of(n, T::k_columns), tiles_of(k, split)),
                T::k_threads, T::k_room, stream, Extent{m, n, k, split}, a, b, end);
}

} // namespace
} // namespace trainer
