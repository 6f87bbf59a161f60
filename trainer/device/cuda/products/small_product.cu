#include "trainer/device/cuda/products/small_product.h"

#include "trainer/device/cuda/products/product.cuh"

namespace trainer {
namespace {

constexpr unsigned k_edge = 8; ///< Rows, and columns, of a block's tile of C.
constexpr unsigned k_tile_sums = k_edge * k_edge;
constexpr std::size_t k_most_steps = 8192; ///< Along k; more are worth the library's split of k.

constexpr std::size_t k_waves = 2; ///< Of blocks, one on each multiprocessor.

/// Rows of A or B at some steps along k.
using Rows = Pack<float, k_four>[k_edge];

/// Loads its k_edge rows from `first` on; beyond the last the last again.
__device__ void load_rows(const float* from, std::size_t stride, std::size_t first,
                          std::size_t rows, std::size_t step, Rows& to) {
  DTRAIN_UNROLL
  for (unsigned i = 0; i < k_edge; ++i) {
    const std::size_t row = first + i < rows ? first + i : rows - 1;
    to[i] = load<k_four>(from + row * stride + step);
  }
}

/// C (m, n) = A (m, k) · B (n, k)ᵀ. A thread adds up all of the tile over four steps in
/// 4 · k_threads; their sums over the threads are spread over these.
__global__ void __launch_bounds__(k_threads)
    small_product_kernel(Extent size, const float* a, std::size_t a_row, const float* b,
                         std::size_t b_row, Store<float> to) {
  DYNAMIC_SHARED(float, room); // The tile's sums of each warp.
  const std::size_t row = std::size_t{blockIdx.x} * k_edge;
  const std::size_t column = std::size_t{blockIdx.y} * k_edge;
  float sums[k_tile_sums] = {};
  for (std::size_t step = threadIdx.x * k_four; step < size.k; step += k_threads * k_four) {
    Rows left;
    Rows right;
    load_rows(a, a_row, row, size.m, step, left);
    load_rows(b, b_row, column, size.n, step, right);
    DTRAIN_UNROLL
    for (unsigned i = 0; i < k_tile_sums; ++i) {
      DTRAIN_UNROLL
      for (unsigned k = 0; k < k_four; ++k) {
        sums[i] += left[i / k_edge].at[k] * right[i % k_edge].at[k];
      }
    }
  }
  float* const own = room + threadIdx.x / k_warp_lanes * k_tile_sums + warp_sums(sums);
  own[0] = sums[0];
  own[1] = sums[1];
  __syncthreads();
  const std::size_t own_row = row + threadIdx.x / k_edge;
  const std::size_t own_column = column + threadIdx.x % k_edge;
  if (threadIdx.x < k_tile_sums && own_row < size.m && own_column < size.n) {
    float sum = 0;
    for (unsigned warp = 0; warp < k_warps; ++warp) {
      sum += room[warp * k_tile_sums + threadIdx.x];
    }
    to.put(sum, own_row, own_column, size, to.c);
  }
}
static_assert(k_tile_sums == 2 * k_warp_lanes);

dim3 tiles_of(const Matmul& s) { return {tiles_of(s.m, k_edge), tiles_of(s.n, k_edge)}; }

} // namespace

bool is_small_product(const CudaStreamHandle& stream, const Matmul& s) {
  const bool is_rounded = s.is_rounded && stream.multiplies_in != DType::f32;
  if (s.batch != 1 || s.a_is_turned || !s.b_is_turned || is_rounded ||
      s.epilogue == Matmul::Epilogue::bias_gradient || s.a.type != DType::f32 ||
      s.b.type != DType::f32 || s.c.type != DType::f32) {
    return false;
  }
  const Matmul one = s.one(0);
  const dim3 tiles = tiles_of(s);
  return s.k <= k_most_steps && s.k % k_four == 0 && one.a_row % k_four == 0 &&
         one.b_row % k_four == 0 && are_fours(s.a.as<float>(), s.b.as<float>()) &&
         std::size_t{tiles.x} * tiles.y <= k_waves * stream.multiprocessors;
}

int put_small_product(const CudaStreamHandle* stream, const Matmul& s) {
  const Matmul one = s.one(0);
  return launch(small_product_kernel, tiles_of(s), k_threads, k_warps * k_tile_sums * sizeof(float),
                stream, Extent{s.m, s.n, s.k, s.k}, s.a.as<float>(), one.a_row, s.b.as<float>(),
                one.b_row,
                Store<float>{s.c.as<float>(), s.accumulate, Ending<float>::of(s), one.c_row,
                             s.plus.as<float>()});
}

} // namespace trainer
