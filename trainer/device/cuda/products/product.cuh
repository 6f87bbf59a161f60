// Matrix products of computed operands: C (m, n) = A (m, k) · B (k, n), where A and B are functors
// of (line, step); a line is a row of A or a column of B. `End` consumes the result. Convolutions
// have larger tiles, and operands of their own (patch_product.cuh).
//
// A block computes a tile of 64 × 64 of C, a thread 8 × 4 of it, while the operands of the next
// steps along k are loaded to registers. Epilogues work on the tile in registers. Cost: 2·m·n·k
// FLOP; A is read n / 64 times, B m / 64 times.
#pragma once

#include "trainer/device/cuda/products/epilogue.cuh"

namespace trainer {
namespace {

constexpr int k_product_threads = 128; ///< Threads of a block.
constexpr int k_own_rows = 8;          ///< Rows of the tile per thread,
constexpr int k_own_columns = 4;       ///< and columns.
constexpr int k_deep = 16;             ///< Steps along k in shared memory.

/// The tile of a block.
struct Square {
  static constexpr int k_rows = 64;
  static constexpr int k_columns = 64;
  static constexpr int k_across = k_columns / k_own_columns; ///< Threads across.
  static constexpr std::size_t k_room = (k_rows + k_columns) * k_deep * sizeof(float);
};
static_assert(Square::k_rows / k_own_rows * Square::k_across == k_product_threads);

/// The size of a product. A block takes `split` steps along k, and k / split blocks share a tile.
struct Extent {
  std::size_t m;
  std::size_t n;
  std::size_t k;
  std::size_t split;
};

/// An operand in memory. `k_along_steps`: neighbouring steps are contiguous; else lines are.
template <bool AlongSteps, typename Value = float>
struct Strided {
  static constexpr bool k_along_steps = AlongSteps;
  const Value* from;
  std::size_t stride; ///< From line to line if contiguous along steps, else from step to step.

  __device__ float operator()(std::size_t line, std::size_t step) const {
    return AlongSteps ? from[line * stride + step] : from[step * stride + line];
  }
  /// N values from (line, step) on, contiguous.
  template <int N>
  __device__ Pack<Value, N> pack(std::size_t line, std::size_t step) const {
    return load<N>(from + (AlongSteps ? line * stride + step : step * stride + line));
  }
};

/// Loads a thread's part of tiles of so many lines and k_deep steps along k, the same lines of each
/// tile, to shared memory [step][line], with zeros past the ends. Neighbouring threads read
/// neighbouring memory.
template <typename From, int Lines>
class TileLoader {
 public:
  __device__ TileLoader(const From& from, std::size_t first_line, std::size_t lines) : from_(from) {
    DTRAIN_UNROLL
    for (int i = 0; i < k_lines; ++i) {
      const std::size_t line = first_line + own_line() + i * k_lines_apart;
      is_inside_[i] = line < lines;
      lines_[i] = is_inside_[i] ? line : first_line;
    }
  }

  /// Loads steps [first, last) to registers.
  __device__ void fetch(std::size_t first, std::size_t last) {
    DTRAIN_UNROLL
    for (int k = 0; k < k_steps; ++k) {
      const std::size_t at = first + own_step() + k * k_steps_apart;
      const std::size_t step = at < last ? at : first;
      DTRAIN_UNROLL
      for (int i = 0; i < k_lines; ++i) {
        values_[k][i] = at < last && is_inside_[i] ? from_(lines_[i], step) : 0.0F;
      }
    }
  }
  __device__ void put(float* to) const {
    DTRAIN_UNROLL
    for (int k = 0; k < k_steps; ++k) {
      DTRAIN_UNROLL
      for (int i = 0; i < k_lines; ++i) {
        to[(own_step() + k * k_steps_apart) * Lines + own_line() + i * k_lines_apart] =
            values_[k][i];
      }
    }
  }

 private:
  static constexpr int k_all = Lines * k_deep / k_product_threads; ///< Values per thread.
  static constexpr int k_steps_at_once = From::k_along_steps ? k_deep : k_product_threads / Lines;
  static constexpr int k_steps = k_deep / k_steps_at_once;
  static constexpr int k_lines = k_all / k_steps;
  static constexpr int k_steps_apart = k_steps_at_once;
  static constexpr int k_lines_apart = Lines / k_lines;

  __device__ static int own_line() {
    const int own = static_cast<int>(threadIdx.x);
    return From::k_along_steps ? own / k_deep : own % Lines;
  }
  __device__ static int own_step() {
    const int own = static_cast<int>(threadIdx.x);
    return From::k_along_steps ? own % k_deep : own / Lines;
  }

  const From& from_;
  std::size_t lines_[k_lines];
  bool is_inside_[k_lines];
  float values_[k_steps][k_lines];
};

/// A thread's sums: contiguous rows, and columns as far apart as there are threads across, to avoid
/// bank conflicts.
using Tile = float[k_own_rows][k_own_columns];

/// Where a thread's part of a tile begins in C, and the distance of its columns.
struct TilePlace {
  std::size_t row;
  std::size_t column;
  int apart;
};

/// sum = the product of a block's tile, which begins at `row` and `column` of C, over steps
/// [first, last). `tiles`: Square::k_room bytes of shared memory.
template <typename A, typename B>
__device__ TilePlace multiply_tile(const Extent& size, const A& from_a, const B& from_b,
                                   std::size_t row, std::size_t column, std::size_t first,
                                   std::size_t last, float* tiles, Tile& sum) {
  float* const a = tiles;
  float* const b = tiles + Square::k_rows * k_deep;
  const int y = static_cast<int>(threadIdx.x) / Square::k_across;
  const int x = static_cast<int>(threadIdx.x) % Square::k_across;
  TileLoader<A, Square::k_rows> load_a(from_a, row, size.m);
  TileLoader<B, Square::k_columns> load_b(from_b, column, size.n);
  load_a.fetch(first, last);
  load_b.fetch(first, last);
  for (std::size_t step = first; step < last; step += k_deep) {
    load_a.put(a);
    load_b.put(b);
    __syncthreads();
    if (step + k_deep < last) {
      load_a.fetch(step + k_deep, last);
      load_b.fetch(step + k_deep, last);
    }
    DTRAIN_UNROLL
    for (int i = 0; i < k_deep; ++i) {
      const auto left = load<k_own_rows / 2>(a + i * Square::k_rows + y * k_own_rows);
      const auto right =
          load<k_own_rows / 2>(a + i * Square::k_rows + y * k_own_rows + k_own_rows / 2);
      DTRAIN_UNROLL
      for (int c = 0; c < k_own_columns; ++c) {
        const float of_b = b[i * Square::k_columns + x + c * Square::k_across];
        DTRAIN_UNROLL
        for (int r = 0; r < k_own_rows / 2; ++r) {
          sum[r][c] += left.at[r] * of_b;
          sum[r + k_own_rows / 2][c] += right.at[r] * of_b;
        }
      }
    }
    __syncthreads();
  }
  return {row + y * k_own_rows, column + x, Square::k_across};
}

template <typename A, typename B, typename End>
__global__ void __launch_bounds__(k_product_threads)
    product_kernel(Extent size, A from_a, B from_b, End end) {
  DYNAMIC_SHARED(float, tiles);
  const std::size_t first = std::size_t{blockIdx.z} * size.split;
  const std::size_t last = first + size.split < size.k ? first + size.split : size.k;
  Tile sum = {};
  const TilePlace place =
      multiply_tile(size, from_a, from_b, std::size_t{blockIdx.x} * Square::k_rows,
                    std::size_t{blockIdx.y} * Square::k_columns, first, last, tiles, sum);
  end(sum, place, size);
}

/// Writes C to memory, (m, n) row-major, the splits one after the other.
template <typename Value>
struct Store {
  Value* c;
  bool accumulate = false;
  Ending<Value> ending = {};
  std::size_t row_size = 0;    ///< Row stride of C; 0: n.
  const Value* plus = nullptr; ///< Added to C.

  __device__ void operator()(const Tile& sum, const TilePlace& place, const Extent& size) const {
    Value* const to = c + blockIdx.z * size.m * size.n;
    DTRAIN_UNROLL
    for (int r = 0; r < k_own_rows; ++r) {
      DTRAIN_UNROLL
      for (int own = 0; own < k_own_columns; ++own) {
        const std::size_t at_row = place.row + r;
        const std::size_t at_column = place.column + own * place.apart;
        if (at_row >= size.m || at_column >= size.n) {
          continue;
        }
        put(sum[r][own], at_row, at_column, size, to);
      }
    }
  }
  /// Ends one sum, and writes it to the C that begins at `to`.
  __device__ void put(float sum, std::size_t row, std::size_t column, const Extent& size,
                      Value* to) const {
    const std::size_t at = row * (row_size == 0 ? size.n : row_size) + column;
    const float value = ending(sum, at, column) + (plus != nullptr ? float{plus[at]} : 0.0F);
    to[at] = accumulate ? to[at] + value : value;
  }
};

template <typename A, typename B, typename End>
int put_product(const CudaStreamHandle* stream, std::size_t m, std::size_t n, std::size_t k,
                std::size_t split, const A& a, const B& b, const End& end) {
  return launch(
      product_kernel<A, B, End>,
      dim3(tiles_of(m, Square::k_rows), tiles_of(n, Square::k_columns), tiles_of(k, split)),
      k_product_threads, Square::k_room, stream, Extent{m, n, k, split}, a, b, end);
}

constexpr std::size_t k_column_blocks = 768;      ///< One wave: 6 on each of 128 multiprocessors.
constexpr std::size_t k_wide_column_blocks = 512; ///< Of 16-byte loads: 4 on each.
static_assert(k_column_blocks <= k_cuda_arrivals);
constexpr std::size_t k_column_partials = k_column_blocks * k_warp_lanes; ///< Their sums.
constexpr std::size_t k_rows_ahead = 8; ///< Rows that a thread loads ahead.

/// N columns of a row.
template <int N, typename From>
__device__ auto columns_of(const From& from, std::size_t row, std::size_t column) {
  if constexpr (N == 1) {
    return Pack<float, 1>{from(row, column)};
  } else {
    return from.template pack<N>(row, column);
  }
}

/// Sums rows [first, last) of from(row, column), for N columns per lane; the first warp gets the
/// sums. Each warp of the block takes every k_warps-th row. `room`: N values per thread.
template <int N, typename From>
__device__ Pack<float, N> sum_of_rows(std::size_t first, std::size_t last, std::size_t columns,
                                      std::size_t column, const From& from, float* room) {
  Pack<float, N> sum = {};
  for (std::size_t row = first + threadIdx.x / k_warp_lanes; column < columns && row < last;
       row += k_rows_ahead * k_warps) {
    decltype(columns_of<N>(from, row, column)) ahead[k_rows_ahead];
    DTRAIN_UNROLL
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      const std::size_t its = row + i * k_warps;
      ahead[i] = {};
      if (its < last) {
        ahead[i] = columns_of<N>(from, its, column);
      }
    }
    DTRAIN_UNROLL
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      DTRAIN_UNROLL
      for (int j = 0; j < N; ++j) {
        sum.at[j] += float{ahead[i].at[j]};
      }
    }
  }
  store(sum, room + threadIdx.x * N);
  __syncthreads();
  if (threadIdx.x < k_warp_lanes) {
    sum = {};
    for (int warp = 0; warp < k_warps; ++warp) {
      const auto its = load<N>(room + (warp * k_warp_lanes + threadIdx.x) * N);
      DTRAIN_UNROLL
      for (int j = 0; j < N; ++j) {
        sum.at[j] += its.at[j];
      }
    }
  }
  return sum;
}

/// to (n) (+)= the sum of the rows of (m, n) values from(row, column), N neighbouring columns a
/// lane. Many rows are split over several blocks; the last to finish adds up the sums that all
/// leave in `partial`.
template <int N, typename From, typename To>
__global__ void __launch_bounds__(k_threads)
    column_sums(std::size_t m, std::size_t n, From from, bool accumulate, To to, float* partial,
                unsigned* arrived) {
  DYNAMIC_SHARED(float, room);
  const std::size_t column =
      (std::size_t{blockIdx.x} * k_warp_lanes + threadIdx.x % k_warp_lanes) * N;
  const bool is_whole = threadIdx.x < k_warp_lanes && column < n;
  const std::size_t each = (m + gridDim.y - 1) / gridDim.y;
  const std::size_t first = blockIdx.y * each;
  auto sum = sum_of_rows<N>(first, first + each < m ? first + each : m, n, column, from, room);
  if (gridDim.y > 1) {
    if (is_whole) {
      store(sum, partial + blockIdx.y * n + column);
    }
    if (!is_last_block(arrived + blockIdx.x, gridDim.y, room)) {
      return;
    }
    sum = sum_of_rows<N>(0, gridDim.y, n, column, Strided<true>{partial, n}, room);
  }
  for (int i = 0; is_whole && i < N; ++i) {
    to[column + i] = accumulate ? to[column + i] + sum.at[i] : sum.at[i];
  }
}

/// `to`: a pointer, or anything indexed like one. `partial`: k_column_partials · N floats.
template <int N = 1, typename From, typename To>
int put_column_sums(const CudaStreamHandle* stream, std::size_t m, std::size_t n, const From& from,
                    bool accumulate, const To& to, float* partial) {
  constexpr std::size_t k_rows_a_block = 2 * k_rows_ahead * k_warps;
  constexpr std::size_t k_most = N == 1 ? k_column_blocks : k_wide_column_blocks;
  const unsigned across = tiles_of(n, N * k_warp_lanes);
  const unsigned down = across >= k_most ? 1 : blocks_for(m, k_rows_a_block, k_most / across);
  return launch(column_sums<N, From, To>, dim3(across, down), k_threads,
                N * k_threads * sizeof(float), stream, m, n, from, accumulate, to, partial,
                stream->arrived);
}
template <typename From>
int put_column_sums(const CudaStreamHandle* stream, std::size_t m, std::size_t n, const From& from,
                    bool accumulate, float* to) {
  return put_column_sums(stream, m, n, from, accumulate, to,
                         reinterpret_cast<float*>(stream->partial));
}
/// Of a matrix in memory.
template <typename Value>
int put_column_sums(const CudaStreamHandle* stream, std::size_t m, std::size_t n,
                    const Strided<true, Value>& from, bool accumulate, float* to) {
  constexpr int k_wide = k_pack<Value>;
  static_assert(k_wide * k_column_partials <= 2 * k_cuda_partials);
  auto* const partial = reinterpret_cast<float*>(stream->partial);
  const bool is_of_packs =
      n % k_wide == 0 && from.stride % k_wide == 0 && are_packs<k_wide>(from.from);
  return is_of_packs ? put_column_sums<k_wide>(stream, m, n, from, accumulate, to, partial)
                     : put_column_sums(stream, m, n, from, accumulate, to, partial);
}

} // namespace
} // namespace trainer
