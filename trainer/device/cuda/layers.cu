// Layers. A fully connected layer is three products of 2·B·I·O FLOP, which move
// 4·(B·I + I·O + B·O) bytes each: for the MLP's 784 × 128 with 64 rows 26 FLOP per byte, where an
// H200 balances at 14 (67 TFLOP/s of fp32, 4.8 TB/s). Products that small are bound by their
// launch. Products themselves: matmul.h, product.cuh.
#include <algorithm>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/products/matmul.h"
#include "trainer/device/cuda/products/product.cuh"
#include "trainer/device/cuda/products/small_product.h"

namespace trainer {
namespace {

/// One warp per row: 4 bytes read and 4 written per logit, and one exponential.
__global__ void __launch_bounds__(k_threads)
    softmax_kernel(std::size_t rows, std::size_t classes, const float* logits,
                   const std::int32_t* labels, const float* scale, float* change, double* partial,
                   unsigned* arrived, Score* score) {
  DYNAMIC_SHARED(double, room);
  const float weight = scale == nullptr ? 0.0F : *scale;
  const unsigned lane = threadIdx.x % k_warp_lanes;
  const unsigned warp = threadIdx.x / k_warp_lanes;
  double sums[2] = {0, 0}; // Loss, and number of correct rows.
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + warp; row < rows;
       row += std::size_t{gridDim.x} * k_warps) {
    const float* z = logits + row * classes;
    float* dz = change + row * classes;
    const auto label = static_cast<unsigned>(labels[row]);
    float largest = -INFINITY;
    unsigned which = 0;
    for (std::size_t c = lane; c < classes; c += k_warp_lanes) {
      if (z[c] > largest) {
        largest = z[c];
        which = static_cast<unsigned>(c);
      }
    }
    warp_argmax(largest, which);
    const float shifted = z[label] - largest; // Read before any lane overwrites it.
    float sum = 0;
    for (std::size_t c = lane; c < classes; c += k_warp_lanes) {
      sum += expf(z[c] - largest);
    }
    sum = warp_sum(sum);
    for (std::size_t c = lane; c < classes; c += k_warp_lanes) {
      dz[c] = (expf(z[c] - largest) / sum - (c == label ? 1.0F : 0.0F)) * weight;
    }
    if (lane == 0) {
      sums[0] += double{logf(sum)} - double{shifted};
      sums[1] += which == label ? 1 : 0;
    }
  }
  if (grid_sums(sums, room, partial, arrived) && threadIdx.x == 0) {
    score->loss += sums[0];
    score->correct += static_cast<std::int64_t>(sums[1]);
    score->count += static_cast<std::int64_t>(rows);
  }
}

/// Strided, of values of either type.
template <bool AlongSteps>
struct StridedOfAny {
  static constexpr bool k_along_steps = AlongSteps;
  const void* from;
  bool is_bf16;
  std::size_t stride;

  static StridedOfAny of(const ConstTypedPointer& from, std::size_t stride) {
    return {from.memory, from.type == DType::bf16, stride};
  }
  __device__ float operator()(std::size_t line, std::size_t step) const {
    const std::size_t at = AlongSteps ? line * stride + step : step * stride + line;
    return is_bf16 ? static_cast<float>(static_cast<const Bf16Value*>(from)[at])
                   : static_cast<const float*>(from)[at];
  }
};

/// Computes a product with our own kernels, for any transposition of A and B.
template <bool TurnedA, bool TurnedB>
int put_own_product(const CudaStreamHandle* stream, const Matmul& s) {
  return by_type(s.c.type, [&](auto value) {
    using Value = decltype(value);
    const Store<Value> store{s.c.as<Value>(), s.accumulate, Ending<Value>::of(s), s.c_row,
                             s.plus.as<Value>()};
    if (s.a.type == DType::f32 && s.b.type == DType::f32) {
      return put_product(stream, s.m, s.n, s.k, s.k, Strided<!TurnedA>{s.a.as<float>(), s.a_row},
                         Strided<TurnedB>{s.b.as<float>(), s.b_row}, store);
    }
    return put_product(stream, s.m, s.n, s.k, s.k, StridedOfAny<!TurnedA>::of(s.a, s.a_row),
                       StridedOfAny<TurnedB>::of(s.b, s.b_row), store);
  });
}

/// Applies the epilogue after a product that was computed without it.
int put_epilogue(const CudaStreamHandle* stream, const Matmul& s) {
  switch (s.epilogue) {
  case Matmul::Epilogue::none:
    return 0;
  case Matmul::Epilogue::bias_gradient:
    return by_type(s.a.type, [&](auto value) {
      using Value = decltype(value);
      return put_column_sums(stream, s.k, s.m,
                             Strided<true, Value>{s.a.as<Value>(), s.one(0).a_row}, s.accumulate,
                             s.beside.as<float>());
    });
  default:
    return by_type(s.c.type, [&](auto value) {
      using Value = decltype(value);
      return by_epilogue(s.epilogue, [&]<Matmul::Epilogue Which>() {
        const unsigned blocks = blocks_for(s.m * s.n, k_pack<Value> * k_threads, 8 * k_most_blocks);
        if constexpr (std::is_same_v<Value, Bf16Value> && (is_gelu(Which) || is_slope(Which))) {
          if (takes_fp8(*stream, s.one(0), s.batch)) { // As the product that takes this C does.
            const unsigned fewer = std::min(blocks, k_fp8_blocks);
            Fp8Largest* largest = nullptr;
            stream->narrowed->begin_product();
            const int error = stream->narrowed->expect_fp8(
                {.from = s.c,
                 .rows = s.m,
                 .columns = s.n,
                 .stride = s.n,
                 .to = is_slope(Which) ? Narrowed::To::e5m2 : Narrowed::To::e4m3},
                fewer, &largest);
            return error != 0 ? error
                              : launch(epilogue_kernel<Which, true, Value>, fewer, k_threads,
                                       k_warps * sizeof(unsigned), stream, s.m, s.n,
                                       s.c.as<Value>(), Ending<Value>::of(s), largest);
          }
        }
        return launch(epilogue_kernel<Which, false, Value>, blocks, k_threads, 0, stream, s.m, s.n,
                      s.c.as<Value>(), Ending<Value>::of(s), nullptr);
      });
    });
  }
}

/// Computes a product with the library if there is one, and if it is not too small for it.
int put_matmul(const CudaStreamHandle* stream, const Matmul& s) {
  const bool is_gradient = s.epilogue == Matmul::Epilogue::bias_gradient;
  bool has_ended = is_small_product(*stream, s);
  int error = has_ended ? put_small_product(stream, s) : multiply(stream, s, has_ended);
  if (error == k_no_blas) {
    const auto own =
        s.a_is_turned
            ? (s.b_is_turned ? put_own_product<true, true> : put_own_product<true, false>)
            : (s.b_is_turned ? put_own_product<false, true> : put_own_product<false, false>);
    error = 0;
    for (std::size_t i = 0; error == 0 && i < s.batch; ++i) {
      error = own(stream, s.one(i));
    }
    has_ended = !is_gradient;
  }
  const std::size_t written = (s.batch - 1) * s.c_batch + s.m * s.one(0).c_row;
  stream->narrowed->forget(s.c, written);
  if (s.beside) {
    stream->narrowed->forget(s.beside, is_gradient ? s.m : written);
  }
  return error != 0 || has_ended ? error : put_epilogue(stream, s);
}

int put_softmax_cross_entropy(const CudaStreamHandle* stream, std::size_t rows, std::size_t classes,
                              const float* logits, const std::int32_t* labels, const float* scale,
                              float* change, Score* score) {
  return launch(softmax_kernel, blocks_for(rows, k_warps), k_threads, 2 * k_warps * sizeof(double),
                stream, rows, classes, logits, labels, scale, change, stream->partial,
                stream->arrived, score);
}

} // namespace

void set_layer_kernels(Kernels& kernels, LayerKernels& layers) {
  kernels.matmul = [](Stream& on, const Matmul& s) {
    check_kernel(on, put_matmul(handle_of(on), s), "matmul", true);
  };
  DTRAIN_PUT(layers, softmax_cross_entropy);
}

} // namespace trainer
