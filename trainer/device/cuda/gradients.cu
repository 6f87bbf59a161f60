// Gradients of small weights and their biases, for several layers in one launch. A block computes a
// tile of 32 × 32 of a weight, a thread four values of it. With the MLP's batch of 64 each block
// loads all its operands at once, and there are fewer blocks than multiprocessors.
#include <algorithm>

#include "trainer/device/cuda/fours.cuh"
#include "trainer/device/cuda/kernels.h"

namespace trainer {
namespace {

constexpr int k_tile = 32; ///< Outputs, and inputs, of a block's tile.
constexpr int k_slab = 64; ///< Rows in shared memory.
constexpr int k_own = 2;   ///< Outputs, and inputs, of a thread.
constexpr int k_half = k_tile / k_own;
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

/// A thread's part of a tile of (rows, columns), on its way to shared memory, [row][column]; zeros
/// past the ends.
class Slab {
 public:
  __device__ void fetch(const float* from, std::size_t first_row, std::size_t rows,
                        std::size_t first_column, std::size_t columns) {
    const std::size_t column = first_column + threadIdx.x % k_tile;
    DTRAIN_UNROLL
    for (int i = 0; i < k_values; ++i) {
      const std::size_t row = first_row + threadIdx.x / k_tile + i * k_threads / k_tile;
      values_[i] = row < rows && column < columns ? from[row * columns + column] : 0.0F;
    }
  }
  __device__ void put(float* to) const {
    DTRAIN_UNROLL
    for (int i = 0; i < k_values; ++i) {
      to[threadIdx.x + i * k_threads] = values_[i];
    }
  }

 private:
  static constexpr int k_values = k_slab * k_tile / k_threads;
  float values_[k_values];
};

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
  const int own_output = static_cast<int>(threadIdx.x) / k_half * k_own; // And the next.
  const int own_input = static_cast<int>(threadIdx.x) % k_half * k_own;
  float sum[k_own][k_own] = {};
  float of_bias[k_own] = {}; // Of the bias of its outputs.
  for (std::size_t row = 0; row < p.rows; row += k_slab) {
    Slab of_dy;
    Slab of_x;
    of_dy.fetch(p.dy, row, p.rows, first_output, p.outputs);
    of_x.fetch(p.x, row, p.rows, first_input, p.inputs);
    of_dy.put(dy);
    of_x.put(x);
    __syncthreads();
    DTRAIN_UNROLL
    for (int i = 0; i < k_slab; ++i) {
      const auto a = load<k_own>(dy + i * k_tile + own_output);
      const auto b = load<k_own>(x + i * k_tile + own_input);
      DTRAIN_UNROLL
      for (int output = 0; output < k_own; ++output) {
        of_bias[output] += a.at[output];
        DTRAIN_UNROLL
        for (int input = 0; input < k_own; ++input) {
          sum[output][input] += a.at[output] * b.at[input];
        }
      }
    }
    __syncthreads();
  }
  const auto put = [&](float value, float& to) { to = p.accumulate ? to + value : value; };
  for (int i = 0; i < k_own; ++i) {
    const std::size_t output = first_output + own_output + i;
    for (int j = 0; j < k_own; ++j) {
      const std::size_t input = first_input + own_input + j;
      if (output < p.outputs && input < p.inputs) {
        put(sum[i][j], p.dweight[output * p.inputs + input]);
      }
    }
    if (first_input == 0 && own_input == 0 && output < p.outputs) {
      put(of_bias[i], p.dbias[output]);
    }
  }
}

int put_weight_gradients(const CudaStreamHandle* stream, std::size_t count, const Matmul* of) {
  int error = 0;
  for (std::size_t done = 0; error == 0 && done < count; done += k_most_products) {
    Products products{};
    unsigned blocks = 0;
    for (std::size_t i = done; i < std::min(count, done + k_most_products); ++i) {
      products.of[products.count++] = {of[i].a.as<float>(),
                                       of[i].b.as<float>(),
                                       of[i].c.as<float>(),
                                       of[i].beside.as<float>(),
                                       of[i].k,
                                       of[i].m,
                                       of[i].n,
                                       blocks,
                                       of[i].accumulate};
      blocks += tiles_of(of[i].m, k_tile) * tiles_of(of[i].n, k_tile);
    }
    error = launch(weight_gradients_kernel, blocks, k_threads, 2 * k_slab * k_tile * sizeof(float),
                   stream, products);
  }
  return error;
}

} // namespace

void set_gradient_kernels(LayerKernels& layers) { DTRAIN_PUT(layers, weight_gradients); }

} // namespace trainer
