// Layers. A fully connected layer is three products, of 2·B·I·O FLOP each, which read and write
// 4·(B·I + I·O + B·O) bytes: of the MLP's 784 × 128 and 64 rows 26 FLOP a byte, where an H200 has
// 67 TFLOP/s of fp32 for 4.8 TB/s, 14 a byte. Yet so small a product is bound by its launch.
// How products are computed: matmul.h, product.cuh.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/matmul.h"
#include "trainer/device/cuda/product.cuh"

namespace trainer {
namespace {

/// dx to 0 where x, what a relu has made, is not above it: 8 bytes read, 4 written.
__global__ void mask_kernel(std::size_t n, const float* x, float* dx) {
  for (std::size_t i = first_item(); i < n; i += all_threads()) {
    dx[i] = x[i] > 0 ? dx[i] : 0.0F;
  }
}

/// A warp a row: 4 bytes read and 4 written a logit, and an exponential of each.
__global__ void softmax_kernel(std::size_t rows, std::size_t classes, const float* logits,
                               const std::uint8_t* labels, const float* scale, float* change,
                               double* partial) {
  DYNAMIC_SHARED(double, room);
  const float weight = scale == nullptr ? 0.0F : *scale;
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
      dz[c] = (expf(z[c] - largest) / sum - (c == label ? 1.0F : 0.0F)) * weight;
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

/// By the library where there is one.
template <typename OwnKernel>
int put_matmul(const CudaStreamHandle* stream, const MatmulShape& shape, const float* a,
               const float* b, const float* bias, float* c, const OwnKernel& own) {
  const int error = multiply(stream, shape, a, b, bias, c);
  return error == k_no_blas ? own() : error;
}

/// By kernels of our own, of whichever of A and B is turned.
template <bool TurnedA, bool TurnedB>
int put_own_product(const CudaStreamHandle* stream, const ProductShape& s, const float* a,
                    const float* b, float* c) {
  return put_product(stream, s.m, s.n, s.k, s.k, Strided<!TurnedA>{a, TurnedA ? s.m : s.k},
                     Strided<TurnedB>{b, TurnedB ? s.k : s.n}, Store{.c = c});
}

int put_row_product(const CudaStreamHandle* stream, const ProductShape* s, const float* a,
                    const float* b, float* c) {
  const MatmulShape shape{.m = s->m,
                          .n = s->n,
                          .k = s->k,
                          .a_is_turned = s->a_is_turned,
                          .b_is_turned = s->b_is_turned};
  return put_matmul(stream, shape, a, b, nullptr, c, [&] {
    const auto own = s->a_is_turned ? (s->b_is_turned ? put_own_product<true, true>
                                                      : put_own_product<true, false>)
                                    : (s->b_is_turned ? put_own_product<false, true>
                                                      : put_own_product<false, false>);
    return own(stream, *s, a, b, c);
  });
}

int put_dense(const CudaStreamHandle* stream, const DenseShape* s, const float* x,
              const float* weight, const float* bias, int relu, float* y) {
  using Epilogue = MatmulShape::Epilogue;
  const MatmulShape shape{.m = s->rows,
                          .n = s->outputs,
                          .k = s->inputs,
                          .a_is_turned = false,
                          .b_is_turned = true,
                          .epilogue = relu != 0 ? Epilogue::relu_bias : Epilogue::bias};
  return put_matmul(stream, shape, x, weight, bias, y, [&] {
    return put_product(stream, s->rows, s->outputs, s->inputs, s->inputs,
                       Strided<true>{x, s->inputs}, Strided<true>{weight, s->inputs},
                       Store{.c = y, .bias = bias, .relu = relu != 0});
  });
}

int put_dense_backward_weight(const CudaStreamHandle* stream, const DenseShape* s, const float* x,
                              const float* dy, int accumulate, float* dweight, float* dbias) {
  const MatmulShape shape{.m = s->outputs,
                          .n = s->inputs,
                          .k = s->rows,
                          .a_is_turned = true,
                          .b_is_turned = false,
                          .accumulate = accumulate != 0};
  const int error = put_matmul(stream, shape, dy, x, nullptr, dweight, [&] {
    return put_product(stream, s->outputs, s->inputs, s->rows, s->rows,
                       Strided<false>{dy, s->outputs}, Strided<false>{x, s->inputs},
                       Store{.c = dweight, .accumulate = accumulate != 0});
  });
  return error != 0 ? error
                    : put_column_sums(stream, s->rows, s->outputs, Strided<true>{dy, s->outputs},
                                      accumulate != 0, dbias);
}

int put_dense_backward_input(const CudaStreamHandle* stream, const DenseShape* s, const float* dy,
                             const float* weight, const float* x, float* dx) {
  const MatmulShape shape{
      .m = s->rows, .n = s->inputs, .k = s->outputs, .a_is_turned = false, .b_is_turned = false};
  const int error = multiply(stream, shape, dy, weight, nullptr, dx);
  if (error != k_no_blas) {
    const std::size_t n = s->rows * s->inputs;
    return error != 0 ? error : launch(mask_kernel, blocks_for(n), k_threads, 0, stream, n, x, dx);
  }
  return put_product(stream, s->rows, s->inputs, s->outputs, s->outputs,
                     Strided<true>{dy, s->outputs}, Strided<false>{weight, s->inputs},
                     Store{.c = dx, .mask = x});
}

int put_dense_backward(const CudaStreamHandle* stream, const DenseShape* s, const float* dy,
                       const float* weight, int accumulate, float* dx) {
  const MatmulShape shape{.m = s->rows,
                          .n = s->inputs,
                          .k = s->outputs,
                          .a_is_turned = false,
                          .b_is_turned = false,
                          .accumulate = accumulate != 0};
  return put_matmul(stream, shape, dy, weight, nullptr, dx, [&] {
    return put_product(stream, s->rows, s->inputs, s->outputs, s->outputs,
                       Strided<true>{dy, s->outputs}, Strided<false>{weight, s->inputs},
                       Store{.c = dx, .accumulate = accumulate != 0});
  });
}

int put_softmax(const CudaStreamHandle* stream, std::size_t rows, std::size_t classes,
                const float* logits, const std::uint8_t* labels, const float* scale, float* change,
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
  table.product = put_row_product;
  table.dense = put_dense;
  table.dense_backward_weight = put_dense_backward_weight;
  table.dense_backward_input = put_dense_backward_input;
  table.dense_backward = put_dense_backward;
  table.softmax_cross_entropy = put_softmax;
}

} // namespace trainer
