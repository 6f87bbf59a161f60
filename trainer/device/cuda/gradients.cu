// Gradients of small weights and their biases, for several layers in one launch. A block computes a
// tile of 32 × 32 of a weight, a thread four values of it. With the MLP's batch of 64 each block
// loads all its operands at once, and there are fewer blocks than multiprocessors.
#include <algorithm>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/sums.cuh"

namespace trainer {
namespace {

constexpr int k_tile = 32; ///< Outputs, and inputs, of a block's tile.
constexpr int k_slab = 64; ///< Rows in shared memory.
constexpr int k_half = k_tile / 2;
constexpr std::size_t k_most_products = 4; ///< Most products of a launch.
static_assert(k_half * k_half == k_threads);

struct Product {
  const float* dy; ///< (rows, outputs)
  const float* x;  ///< (rows, inputs)
  float* dweight;
  float* dbias;
  std::size_t rows;
  std::size_t outputs;
  std::size_t inputs;
  unsigned first; ///< Its first block.
  bool accumulate;
};
struct Products {
  Product of[k_most_products];
  unsigned count;
};

/// Copies a tile of (rows, columns) to [row][column], with zeros past the ends.
__device__ void load_slab(const float* from, std::size_t first_row, std::size_t rows,
                          std::size_t first_column, std::size_t columns, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < k_slab * k_tile; i += k_threads) {
    const std::size_t row = first_row + i / k_tile;
    const std::size_t column = first_column + i % k_tile;
    to[i] = row < rows && column < columns ? from[row * columns + column] : 0.0F;
  }
}

__global__ void __launch_bounds__(k_threads) weight_gradients_kernel(Products products) {
  DYNAMIC_SHARED(float, dy);
  float* const x = dy + k_slab * k_tile;
  unsigned number = 0;
  while (number + 1 < products.count && blockIdx.x >= products.of[number + 1].first) {
    ++number;
  }
  const Product p = products.of[number];
  const std::size_t across = (p.inputs + k_tile - 1) / k_tile;
  const std::size_t tile = blockIdx.x - p.first;
  const std::size_t first_output = tile / across * k_tile;
  const std::size_t first_input = tile % across * k_tile;
  const int own_output = static_cast<int>(threadIdx.x) / k_half * 2; // This output and the next.
  const int own_input = static_cast<int>(threadIdx.x) % k_half;      // And half a tile on.
  float sum[2][2] = {};
  float of_bias = 0; // Gradient of the bias of output threadIdx.x of the tile.
  for (std::size_t row = 0; row < p.rows; row += k_slab) {
    load_slab(p.dy, row, p.rows, first_output, p.outputs, dy);
    load_slab(p.x, row, p.rows, first_input, p.inputs, x);
    __syncthreads();
    for (int i = 0; i < k_slab; ++i) {
      const float* const a = dy + i * k_tile + own_output;
      const float* const b = x + i * k_tile + own_input;
      sum[0][0] += a[0] * b[0];
      sum[0][1] += a[0] * b[k_half];
      sum[1][0] += a[1] * b[0];
      sum[1][1] += a[1] * b[k_half];
    }
    if (first_input == 0 && threadIdx.x < k_tile) {
      for (int i = 0; i < k_slab; ++i) {
        of_bias += dy[i * k_tile + threadIdx.x];
      }
    }
    __syncthreads();
  }
  const auto put = [&](float value, float& to) { to = p.accumulate ? to + value : value; };
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const std::size_t output = first_output + own_output + i;
      const std::size_t input = first_input + own_input + j * k_half;
      if (output < p.outputs && input < p.inputs) {
        put(sum[i][j], p.dweight[output * p.inputs + input]);
      }
    }
  }
  if (first_input == 0 && threadIdx.x < k_tile && first_output + threadIdx.x < p.outputs) {
    put(of_bias, p.dbias[first_output + threadIdx.x]);
  }
}

int put_weight_gradients(const CudaStreamHandle* stream, std::size_t count, const Matmul* of) {
  int error = 0;
  for (std::size_t done = 0; error == 0 && done < count; done += k_most_products) {
    Products products{};
    unsigned blocks = 0;
    for (std::size_t i = done; i < std::min(count, done + k_most_products); ++i) {
      const auto tiles = [](std::size_t all) {
        return static_cast<unsigned>((all + k_tile - 1) / k_tile);
      };
      products.of[products.count++] = {of[i].a.as<float>(),
                                       of[i].b.as<float>(),
                                       of[i].c.as<float>(),
                                       of[i].beside.as<float>(),
                                       of[i].k,
                                       of[i].m,
                                       of[i].n,
                                       blocks,
                                       of[i].accumulate};
      blocks += tiles(of[i].m) * tiles(of[i].n);
    }
    error = launch(weight_gradients_kernel, blocks, k_threads, 2 * k_slab * k_tile * sizeof(float),
                   stream, products);
  }
  return error;
}

} // namespace

void set_gradient_kernels(LayerKernels& layers) { DTRAIN_PUT(layers, weight_gradients); }

} // namespace trainer
