// Layers. A fully connected layer is three products, of 2·B·I·O FLOP each, which read and write
// 4·(B·I + I·O + B·O) bytes: of the MLP's 784 × 128 and 64 rows 26 FLOP a byte, where an H200 has
// 67 TFLOP/s of fp32 for 4.8 TB/s, 14 a byte. Yet so small a product is bound by its launch.
//
// Products are computed in tiles of 64 × 64 of C by a block, 4 × 4 by a thread: of each step along
// k a block reads 2 · 64 values for 64 · 64 multiply-adds. What follows a product (bias, ReLU, its
// mask) is done while a tile is in registers.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/sums.cuh"

namespace trainer {
namespace {

constexpr int k_side = 64; ///< Of a block's tile,
constexpr int k_deep = 16; ///< and so many steps along k in shared memory;
constexpr int k_own = 4;   ///< of a thread's.
constexpr int k_across = k_side / k_own;
static_assert(k_across * k_across == k_threads);

/// C (m, n) = A (m, k) · B (k, n), C row-major, with what follows.
struct Product {
  std::size_t m;
  std::size_t n;
  std::size_t k;
  const float* a; ///< a[row * a_row + i * a_column]
  std::size_t a_row;
  std::size_t a_column;
  const float* b; ///< b[i * b_row + column * b_column]
  std::size_t b_row;
  std::size_t b_column;
  float* c;
  const float* bias = nullptr; ///< (n), added.
  const float* mask = nullptr; ///< (m, n): 0 where it is not above 0.
  bool relu = false;
  bool accumulate = false;
};

/// A tile of k_side lines and k_deep steps along k to shared memory, [step][line], zeros past the
/// ends. Neighbouring threads read what is neighbouring in memory.
__device__ void load_tile(const float* from, std::size_t line_stride, std::size_t step_stride,
                          std::size_t first_line, std::size_t lines, std::size_t first_step,
                          std::size_t steps, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < k_side * k_deep; i += k_threads) {
    const int line = step_stride == 1 ? i / k_deep : i % k_side;
    const int step = step_stride == 1 ? i % k_deep : i / k_side;
    const bool is_inside = first_line + line < lines && first_step + step < steps;
    to[step * k_side + line] =
        is_inside ? from[(first_line + line) * line_stride + (first_step + step) * step_stride]
                  : 0.0F;
  }
}

__global__ void __launch_bounds__(k_threads) product_kernel(Product p) {
  DYNAMIC_SHARED(float, tiles);
  float* const a = tiles;
  float* const b = tiles + k_side * k_deep;
  const std::size_t row = std::size_t{blockIdx.y} * k_side;
  const std::size_t column = std::size_t{blockIdx.x} * k_side;
  const int y = static_cast<int>(threadIdx.x) / k_across;
  const int x = static_cast<int>(threadIdx.x) % k_across;
  float sum[k_own][k_own] = {};
  for (std::size_t step = 0; step < p.k; step += k_deep) {
    load_tile(p.a, p.a_row, p.a_column, row, p.m, step, p.k, a);
    load_tile(p.b, p.b_column, p.b_row, column, p.n, step, p.k, b);
    __syncthreads();
    for (int i = 0; i < k_deep; ++i) {
      for (int r = 0; r < k_own; ++r) {
        for (int c = 0; c < k_own; ++c) { // A thread's columns are k_across apart: no bank twice.
          sum[r][c] += a[i * k_side + y * k_own + r] * b[i * k_side + x + c * k_across];
        }
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < k_own; ++r) {
    for (int c = 0; c < k_own; ++c) {
      const std::size_t at_row = row + y * k_own + r;
      const std::size_t at_column = column + x + c * k_across;
      if (at_row >= p.m || at_column >= p.n) {
        continue;
      }
      const std::size_t at = at_row * p.n + at_column;
      float value = sum[r][c];
      if (p.bias != nullptr) {
        value += p.bias[at_column];
      }
      if (p.relu && value < 0) { // A NaN stays one.
        value = 0;
      }
      if (p.mask != nullptr && !(p.mask[at] > 0)) {
        value = 0;
      }
      p.c[at] = p.accumulate ? p.c[at] + value : value;
    }
  }
}

/// to (n) (+)= the sum of the rows of `from` (m, n): a block a warp's width of columns, each of its
/// warps every k_warps-th row. 4 bytes read a value.
__global__ void column_sums(std::size_t m, std::size_t n, const float* from, bool accumulate,
                            float* to) {
  DYNAMIC_SHARED(float, room);
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const std::size_t column = std::size_t{blockIdx.x} * k_warp_lanes + lane;
  float sum = 0;
  for (std::size_t row = threadIdx.x / k_warp_lanes; column < n && row < m; row += k_warps) {
    sum += from[row * n + column];
  }
  room[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < k_warp_lanes && column < n) {
    sum = accumulate ? to[column] : 0.0F;
    for (int warp = 0; warp < k_warps; ++warp) {
      sum += room[warp * k_warp_lanes + lane];
    }
    to[column] = sum;
  }
}

/// A warp a row: 4 bytes read and 4 written a logit, and an exponential of each.
__global__ void softmax_kernel(std::size_t rows, std::size_t classes, const float* logits,
                               const std::uint8_t* labels, float scale, float* change,
                               double* partial) {
  DYNAMIC_SHARED(double, room);
  const unsigned lane = threadIdx.x % k_warp_lanes;
  const unsigned warp = threadIdx.x / k_warp_lanes;
  double loss = 0;
  double correct = 0;
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + warp; row < rows;
       row += std::size_t{gridDim.x} * k_warps) {
    const float* z = logits + row * classes;
    float* dz = change + row * classes;
    const unsigned label = labels[row];
    float largest = -INFINITY;
    unsigned which = 0;
    for (std::size_t c = lane; c < classes; c += k_warp_lanes) {
      if (z[c] > largest) {
        largest = z[c];
        which = static_cast<unsigned>(c);
      }
    }
    for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
      const float value = __shfl_xor_sync(k_all_lanes, largest, other);
      const unsigned its = __shfl_xor_sync(k_all_lanes, which, other);
      if (value > largest || (value == largest && its < which)) { // The first of several.
        largest = value;
        which = its;
      }
    }
    const float shifted = z[label] - largest; // Before anybody writes there.
    float sum = 0;
    for (std::size_t c = lane; c < classes; c += k_warp_lanes) {
      sum += expf(z[c] - largest);
    }
    sum = warp_sum(sum);
    for (std::size_t c = lane; c < classes; c += k_warp_lanes) {
      dz[c] = (expf(z[c] - largest) / sum - (c == label ? 1.0F : 0.0F)) * scale;
    }
    loss += double{logf(sum)} - double{shifted};
    correct += which == label ? 1 : 0;
  }
  loss = block_sum(lane == 0 ? loss : 0.0, room);
  correct = block_sum(lane == 0 ? correct : 0.0, room);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = loss;
    partial[k_most_blocks + blockIdx.x] = correct;
  }
}

__global__ void add_score(unsigned blocks, const double* partial, std::size_t rows, Score* score) {
  const double loss = sum_of_partials(partial, blocks);
  const double correct = sum_of_partials(partial + k_most_blocks, blocks);
  if (threadIdx.x == 0) {
    score->loss += loss;
    score->correct += static_cast<std::int64_t>(correct);
    score->count += static_cast<std::int64_t>(rows);
  }
}

int put_product(const CudaStreamHandle* stream, const Product& p) {
  const dim3 grid(static_cast<unsigned>((p.n + k_side - 1) / k_side),
                  static_cast<unsigned>((p.m + k_side - 1) / k_side));
  return launch(product_kernel, grid, k_threads, 2 * k_side * k_deep * sizeof(float), stream, p);
}

int put_dense(const CudaStreamHandle* stream, const DenseShape* s, const float* x,
              const float* weight, const float* bias, int relu, float* y) {
  return put_product(stream, {.m = s->rows,
                              .n = s->outputs,
                              .k = s->inputs,
                              .a = x,
                              .a_row = s->inputs,
                              .a_column = 1,
                              .b = weight,
                              .b_row = 1,
                              .b_column = s->inputs,
                              .c = y,
                              .bias = bias,
                              .relu = relu != 0});
}

int put_dense_backward_weight(const CudaStreamHandle* stream, const DenseShape* s, const float* x,
                              const float* dy, int accumulate, float* dweight, float* dbias) {
  const int error = put_product(stream, {.m = s->outputs,
                                         .n = s->inputs,
                                         .k = s->rows,
                                         .a = dy,
                                         .a_row = 1,
                                         .a_column = s->outputs,
                                         .b = x,
                                         .b_row = s->inputs,
                                         .b_column = 1,
                                         .c = dweight,
                                         .accumulate = accumulate != 0});
  return error != 0 ? error
                    : launch(column_sums,
                             static_cast<unsigned>((s->outputs + k_warp_lanes - 1) / k_warp_lanes),
                             k_threads, k_threads * sizeof(float), stream, s->rows, s->outputs, dy,
                             accumulate != 0, dbias);
}

int put_dense_backward_input(const CudaStreamHandle* stream, const DenseShape* s, const float* dy,
                             const float* weight, const float* x, float* dx) {
  return put_product(stream, {.m = s->rows,
                              .n = s->inputs,
                              .k = s->outputs,
                              .a = dy,
                              .a_row = s->outputs,
                              .a_column = 1,
                              .b = weight,
                              .b_row = s->inputs,
                              .b_column = 1,
                              .c = dx,
                              .mask = x});
}

int put_softmax(const CudaStreamHandle* stream, std::size_t rows, std::size_t classes,
                const float* logits, const std::uint8_t* labels, float scale, float* change,
                Score* score) {
  const unsigned blocks = blocks_for(rows, k_warps);
  const int error = launch(softmax_kernel, blocks, k_threads, k_warps * sizeof(double), stream,
                           rows, classes, logits, labels, scale, change, stream->partial);
  return error != 0
             ? error
             : launch(add_score, 1, k_warp_lanes, 0, stream, blocks, stream->partial, rows, score);
}

} // namespace

void set_layer_kernels(DtrainCuda& table) {
  table.dense = put_dense;
  table.dense_backward_weight = put_dense_backward_weight;
  table.dense_backward_input = put_dense_backward_input;
  table.softmax_cross_entropy = put_softmax;
}

} // namespace trainer
