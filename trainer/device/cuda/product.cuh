// Matrix products, of whatever is at hand a value at a time: C (m, n) = A (m, k) · B (k, n), where
// A and B are functors of (line, step), line a row of A or a column of B, and `End` takes what
// comes of it.
//
// A block computes a tile of 64 × 64 of C, a thread 4 × 4 of it: of each step along k a block reads
// 2 · 64 values for 64 · 64 multiply-adds. What follows a product (bias, ReLU, pooling) is done
// while a tile is in registers. Cost: 2·m·n·k FLOP; A is read n / 64 times, B m / 64 times.
#pragma once

#include "trainer/device/cuda/fours.cuh"

namespace trainer {
namespace {

constexpr int k_side = 64; ///< Of a block's tile,
constexpr int k_deep = 16; ///< and so many steps along k in shared memory;
constexpr int k_own = 4;   ///< of a thread's.
constexpr int k_across = k_side / k_own;
static_assert(k_across * k_across == k_threads);

/// How large a product is. A block takes `split` steps along k, and as many blocks as that takes
/// share a tile.
struct Extent {
  std::size_t m;
  std::size_t n;
  std::size_t k;
  std::size_t split;
};

/// In memory. `k_along_steps`: neighbouring steps are neighbours there, else lines are.
template <bool AlongSteps, typename Value = float>
struct Strided {
  static constexpr bool k_along_steps = AlongSteps;
  const Value* from;
  std::size_t stride; ///< From line to line along steps, else from step to step.

  __device__ float operator()(std::size_t line, std::size_t step) const {
    return AlongSteps ? from[line * stride + step] : from[step * stride + line];
  }
};

/// A tile of k_side lines and k_deep steps along k to shared memory, [step][line], zeros past the
/// ends. Neighbouring threads read what is neighbouring in memory.
template <typename From>
__device__ void load_tile(const From& from, std::size_t first_line, std::size_t lines,
                          std::size_t first_step, std::size_t steps, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < k_side * k_deep; i += k_threads) {
    const int line = From::k_along_steps ? i / k_deep : i % k_side;
    const int step = From::k_along_steps ? i % k_deep : i / k_side;
    const bool is_inside = first_line + line < lines && first_step + step < steps;
    to[step * k_side + line] = is_inside ? from(first_line + line, first_step + step) : 0.0F;
  }
}

/// A thread's 4 × 4: rows on end, columns k_across apart, so that no bank is read twice.
using Tile = float[k_own][k_own];

/// sum += the products of a block's tile, which begins at `row` and `column` of C, along steps
/// [first, last). `tiles`: 2 · k_side · k_deep floats that the block shares.
template <typename A, typename B>
__device__ void add_products(const Extent& size, const A& from_a, const B& from_b, std::size_t row,
                             std::size_t column, std::size_t first, std::size_t last, float* tiles,
                             Tile& sum) {
  float* const a = tiles;
  float* const b = tiles + k_side * k_deep;
  const int y = static_cast<int>(threadIdx.x) / k_across;
  const int x = static_cast<int>(threadIdx.x) % k_across;
  for (std::size_t step = first; step < last; step += k_deep) {
    load_tile(from_a, row, size.m, step, last, a);
    load_tile(from_b, column, size.n, step, last, b);
    __syncthreads();
    for (int i = 0; i < k_deep; ++i) {
      for (int r = 0; r < k_own; ++r) {
        for (int c = 0; c < k_own; ++c) {
          sum[r][c] += a[i * k_side + y * k_own + r] * b[i * k_side + x + c * k_across];
        }
      }
    }
    __syncthreads();
  }
}

constexpr std::size_t k_tile_room = 2 * k_side * k_deep * sizeof(float);

inline unsigned tiles_of(std::size_t all, std::size_t each = k_side) {
  return static_cast<unsigned>((all + each - 1) / each);
}

template <typename A, typename B, typename End>
__global__ void __launch_bounds__(k_threads)
    product_kernel(Extent size, A from_a, B from_b, End end) {
  DYNAMIC_SHARED(float, tiles);
  const std::size_t row = std::size_t{blockIdx.x} * k_side;
  const std::size_t column = std::size_t{blockIdx.y} * k_side;
  const std::size_t first = std::size_t{blockIdx.z} * size.split;
  const std::size_t last = first + size.split < size.k ? first + size.split : size.k;
  Tile sum = {};
  add_products(size, from_a, from_b, row, column, first, last, tiles, sum);
  const int own = static_cast<int>(threadIdx.x);
  end(sum, row + own / k_across * k_own, column + own % k_across, size);
}

/// Φ(x), of the normal distribution.
__device__ inline float phi_of(float x) { return 0.5F * (1 + erff(x * 0.70710678F)); }

__device__ inline float gelu_slope(float x) {
  constexpr float k_peak = 0.39894228F; // 1 / √(2π)
  return phi_of(x) + x * k_peak * expf(-0.5F * x * x);
}

/// gelu by tanh is x · σ(2·s), s = √(2/π)·(x + 0.044715·x³).
__device__ inline float gelu_share(float x) {
  return 1 / (1 + expf(-1.5957691F * (x + 0.044715F * x * x * x)));
}

__device__ inline float gelu_tanh_slope(float x) {
  const float rest = expf(fminf(-1.5957691F * (x + 0.044715F * x * x * x), 80)); // Not infinite.
  const float share = 1 / (1 + rest); // And 1 - share is share · rest, with no bits lost.
  return share + x * share * (share * rest) * (1.5957691F + 0.2140645F * x * x);
}

/// A Matmul's epilogue, of a C of such values.
template <typename Value>
struct Ending {
  using Epilogue = Matmul::Epilogue;
  Epilogue epilogue = Epilogue::none;
  const float* bias = nullptr;
  const Value* u = nullptr;
  Value* beside = nullptr;

  static Ending of(const Matmul& s) {
    const bool is_slope = Ending{s.epilogue}.is_slope();
    return {s.epilogue, is_slope ? nullptr : s.with.as<float>(),
            is_slope ? s.with.as<Value>() : nullptr,
            s.epilogue == Epilogue::bias_gradient ? nullptr : s.beside.as<Value>()};
  }

  __device__ bool has_bias() const {
    return epilogue >= Epilogue::bias && epilogue <= Epilogue::gelu_tanh_bias;
  }
  __device__ bool is_gelu() const {
    return epilogue == Epilogue::gelu_bias || epilogue == Epilogue::gelu_tanh_bias;
  }
  DTRAIN_ON_BOTH bool is_slope() const {
    return epilogue >= Epilogue::drelu && epilogue <= Epilogue::dgelu_tanh;
  }
  /// What becomes of a value of C that has the bias, or that `its_u` is beside.
  __device__ float end(float value, float its_u) const {
    switch (epilogue) {
    case Epilogue::relu_bias:
      return value < 0 ? 0.0F : value; // A NaN stays one.
    case Epilogue::gelu_bias:
      return value * phi_of(value);
    case Epilogue::gelu_tanh_bias:
      return value * gelu_share(value);
    case Epilogue::drelu:
      return its_u > 0 ? value : 0.0F;
    case Epilogue::dgelu:
      return value * gelu_slope(its_u);
    case Epilogue::dgelu_tanh:
      return value * gelu_tanh_slope(its_u);
    default:
      return value;
    }
  }
  /// What becomes of value number `at` of C, which is in `column`.
  __device__ float operator()(float value, std::size_t at, std::size_t column) const {
    if (has_bias()) {
      value += bias[column];
    }
    if (is_gelu()) {
      beside[at] = value;
    }
    return end(value, is_slope() ? static_cast<float>(u[at]) : 0.0F);
  }
};

/// To memory, (m, n) row-major, of several splits one after the other.
template <typename Value>
struct Store {
  Value* c;
  bool accumulate = false;
  Ending<Value> ending = {};
  std::size_t row_size = 0; ///< From a row of C to the next; 0: n.

  __device__ void operator()(const Tile& sum, std::size_t row, std::size_t column,
                             const Extent& size) const {
    Value* const to = c + blockIdx.z * size.m * size.n;
    for (int r = 0; r < k_own; ++r) {
      for (int own = 0; own < k_own; ++own) {
        const std::size_t at_row = row + r;
        const std::size_t at_column = column + own * k_across;
        if (at_row >= size.m || at_column >= size.n) {
          continue;
        }
        const std::size_t at = at_row * (row_size == 0 ? size.n : row_size) + at_column;
        const float value = ending(sum[r][own], at, at_column);
        to[at] = accumulate ? to[at] + value : value;
      }
    }
  }
};

template <typename A, typename B, typename End>
int put_product(const CudaStreamHandle* stream, std::size_t m, std::size_t n, std::size_t k,
                std::size_t split, const A& a, const B& b, const End& end) {
  return launch(product_kernel<A, B, End>, dim3(tiles_of(m), tiles_of(n), tiles_of(k, split)),
                k_threads, k_tile_room, stream, Extent{m, n, k, split}, a, b, end);
}

constexpr std::size_t k_column_blocks = 768; ///< Of 132 multiprocessors, 6 each, in one wave;
static_assert(k_column_blocks <= k_cuda_arrivals);
constexpr std::size_t k_column_partials = k_column_blocks * k_warp_lanes; ///< what they leave.
constexpr std::size_t k_rows_ahead = 8; ///< That a thread loads at once.

/// The sums of rows [first, last) of from(row, column), of a warp's width of columns: to the first
/// warp. Each of the block's warps takes every k_warps-th row. `room`: a value a thread.
template <typename From>
__device__ float sum_of_rows(std::size_t first, std::size_t last, std::size_t columns,
                             std::size_t column, const From& from, float* room) {
  float sum = 0;
  for (std::size_t row = first + threadIdx.x / k_warp_lanes; column < columns && row < last;
       row += k_rows_ahead * k_warps) {
    float ahead[k_rows_ahead];
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      ahead[i] = row + i * k_warps < last ? from(row + i * k_warps, column) : 0.0F;
    }
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      sum += ahead[i];
    }
  }
  room[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < k_warp_lanes) {
    sum = 0;
    for (int warp = 0; warp < k_warps; ++warp) {
      sum += room[warp * k_warp_lanes + threadIdx.x];
    }
  }
  return sum;
}

/// to (n) (+)= the sum of the rows of (m, n) values `from`(row, column). Of many rows several
/// blocks take a part each, of which the last to come adds up what they leave in `partial`.
template <typename From, typename To>
__global__ void __launch_bounds__(k_threads)
    column_sums(std::size_t m, std::size_t n, From from, bool accumulate, To to, float* partial,
                unsigned* arrived) {
  DYNAMIC_SHARED(float, room);
  const std::size_t column = std::size_t{blockIdx.x} * k_warp_lanes + threadIdx.x % k_warp_lanes;
  const bool is_whole = threadIdx.x < k_warp_lanes && column < n;
  const std::size_t each = (m + gridDim.y - 1) / gridDim.y;
  const std::size_t first = blockIdx.y * each;
  float sum = sum_of_rows(first, first + each < m ? first + each : m, n, column, from, room);
  if (gridDim.y > 1) {
    if (is_whole) {
      partial[blockIdx.y * n + column] = sum;
    }
    if (!is_last_block(arrived + blockIdx.x, gridDim.y, room)) {
      return;
    }
    sum = sum_of_rows(0, gridDim.y, n, column, Strided<true>{partial, n}, room);
  }
  if (is_whole) {
    to[column] = accumulate ? to[column] + sum : sum;
  }
}

/// `to`: a pointer, or what is indexed like one. `partial`: k_column_partials floats.
template <typename From, typename To>
int put_column_sums(const CudaStreamHandle* stream, std::size_t m, std::size_t n, const From& from,
                    bool accumulate, const To& to, float* partial) {
  constexpr std::size_t k_rows_a_block = 2 * k_rows_ahead * k_warps;
  const unsigned across = tiles_of(n, k_warp_lanes);
  const unsigned down =
      across >= k_column_blocks ? 1 : blocks_for(m, k_rows_a_block, k_column_blocks / across);
  return launch(column_sums<From, To>, dim3(across, down), k_threads, k_threads * sizeof(float),
                stream, m, n, from, accumulate, to, partial, stream->arrived);
}
template <typename From>
int put_column_sums(const CudaStreamHandle* stream, std::size_t m, std::size_t n, const From& from,
                    bool accumulate, float* to) {
  return put_column_sums(stream, m, n, from, accumulate, to,
                         reinterpret_cast<float*>(stream->partial));
}

} // namespace
} // namespace trainer
