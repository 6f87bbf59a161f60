// Convolutions as products of matrices that nobody writes down (implicit GEMM): each value is
// looked up where it is, in the image or in the pool that it is of. Letters as ConvolutionShape has
// them; R = 4·N·P pixels that are in pools, four on end, so that a thread's four rows are one
// pool's.
//
//   forward   (R, O) = pixels (R, 9·C) · weightᵀ (9·C, O), pooled in registers: a pool's sums never
//             leave them
//   weight    (O, 9·C) = dyᵀ (O, R) · pixels (R, 9·C), dy being 0 but for the pixel that was
//   chosen;
//             R is long and the result small, so R is split, and the parts are added up in order
//   input     (N·H·W, C) = dy (N·H·W, 9·O) · weight (9·O, C)
//
// Each is 2·R·9·C·O FLOP. Read and written are at least 4·(N·H·W·C + 9·C·O) + 5·N·P·O bytes: of the
// CNN's second one 72 FLOP a byte, bound by arithmetic (67 TFLOP/s of fp32 on an H200); of its
// first, one channel, 17, about even with memory.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/product.cuh"

namespace trainer {
namespace {

constexpr std::size_t k_taps = 9;
constexpr std::uint8_t k_none_chosen = 4;
static_assert(k_own == 4, "a thread's rows are a pool");

/// The pixels (row, tap·C + channel) that a pool's pixel `row` is made of; 0 around the image.
template <bool AlongSteps>
struct Pixels {
  static constexpr bool k_along_steps = AlongSteps;
  ConvolutionShape s;
  const float* x;

  __device__ float operator()(std::size_t line, std::size_t step) const {
    const std::size_t row = AlongSteps ? line : step;
    const std::size_t column = AlongSteps ? step : line;
    const std::size_t pools = s.pools();
    const std::size_t pool = row / 4 % pools;
    const std::size_t tap = column / s.channels;
    // One more than where it is: 0 and height + 1 are outside.
    const std::size_t at_y = pool / (s.width / 2) * 2 + row % 4 / 2 + tap / 3;
    const std::size_t at_x = pool % (s.width / 2) * 2 + row % 2 + tap % 3;
    if (at_y == 0 || at_y > s.height || at_x == 0 || at_x > s.width) {
      return 0;
    }
    const std::size_t image = row / 4 / pools;
    return x[((image * s.height + at_y - 1) * s.width + at_x - 1) * s.channels +
             column % s.channels];
  }
};

/// The gradient of pixel `row` before it was pooled, by output.
struct Unpooled {
  std::size_t outputs;
  const float* dy;
  const std::uint8_t* chosen;

  __device__ float at(std::size_t pool, std::size_t quarter, std::size_t output) const {
    const std::size_t i = pool * outputs + output;
    return chosen[i] == quarter ? dy[i] : 0.0F;
  }
};

struct UnpooledByOutput : Unpooled { ///< (output, row)
  static constexpr bool k_along_steps = false;
  __device__ float operator()(std::size_t output, std::size_t row) const {
    return at(row / 4, row % 4, output);
  }
};

struct UnpooledAround : Unpooled { ///< (pixel of the image, tap·O + output)
  static constexpr bool k_along_steps = true;
  ConvolutionShape s;
  __device__ float operator()(std::size_t pixel, std::size_t step) const {
    const std::size_t tap = step / outputs;
    // Where the output is that read this pixel by this tap, and one more.
    const std::size_t at_y = pixel / s.width % s.height + 2 - tap / 3;
    const std::size_t at_x = pixel % s.width + 2 - tap % 3;
    const std::size_t pools_across = s.width / 2;
    if (at_y == 0 || at_y > s.height / 2 * 2 || at_x == 0 || at_x > pools_across * 2) {
      return 0;
    }
    const std::size_t image = pixel / (s.width * s.height);
    const std::size_t pool = image * s.pools() + (at_y - 1) / 2 * pools_across + (at_x - 1) / 2;
    return at(pool, (at_y - 1) % 2 * 2 + (at_x - 1) % 2, step % outputs);
  }
};

struct WeightByChannel { ///< (channel, tap·O + output)
  static constexpr bool k_along_steps = false;
  ConvolutionShape s;
  const float* weight;
  __device__ float operator()(std::size_t channel, std::size_t step) const {
    return weight[(step % s.outputs * k_taps + step / s.outputs) * s.channels + channel];
  }
};

/// What was pooled, and not made 0.
struct Pooled {
  std::size_t outputs;
  const float* dy;
  const std::uint8_t* chosen;
  __device__ float operator()(std::size_t pool, std::size_t output) const {
    const std::size_t i = pool * outputs + output;
    return chosen[i] == k_none_chosen ? 0.0F : dy[i];
  }
};

/// A thread's rows are the four of a pool. A NaN is kept.
struct Pool {
  const float* bias;
  float* y;
  std::uint8_t* chosen;

  __device__ void operator()(const Tile& sum, std::size_t row, std::size_t column,
                             const Extent& size) const {
    for (int own = 0; own < k_own; ++own) {
      const std::size_t output = column + own * k_across;
      if (row >= size.m || output >= size.n) {
        continue;
      }
      float best = sum[0][own];
      std::uint8_t which = 0;
      for (int i = 1; i < k_own; ++i) {
        if (!(sum[i][own] <= best) && !isnan(best)) {
          best = sum[i][own];
          which = static_cast<std::uint8_t>(i);
        }
      }
      best += bias[output];
      const bool dies = best <= 0;
      y[row / 4 * size.n + output] = dies ? 0.0F : best;
      chosen[row / 4 * size.n + output] = dies ? k_none_chosen : which;
    }
  }
};

int put_convolution(const CudaStreamHandle* stream, const ConvolutionShape& s, const float* x,
                    const float* weight, const float* bias, float* y, std::uint8_t* chosen) {
  const std::size_t k = k_taps * s.channels;
  return put_product(stream, s.pooled_pixels(), s.outputs, k, k, Pixels<true>{s, x},
                     Strided<true>{weight, k}, Pool{bias, y, chosen});
}

int put_convolution_backward_weight(const CudaStreamHandle* stream, const ConvolutionShape& s,
                                    const float* x, const float* dy, const std::uint8_t* chosen,
                                    bool accumulate, float* room, float* dweight, float* dbias) {
  const std::size_t n = k_taps * s.channels;
  int error = put_product(stream, s.outputs, n, s.pooled_pixels(), k_pixels_a_part,
                          UnpooledByOutput{{s.outputs, dy, chosen}}, Pixels<false>{s, x},
                          Store<float>{.c = room});
  if (error == 0) {
    error = put_column_sums(stream, s.parts(), n * s.outputs, Strided<true>{room, n * s.outputs},
                            accumulate, dweight);
  }
  return error != 0 ? error
                    : put_column_sums(stream, s.images * s.pools(), s.outputs,
                                      Pooled{s.outputs, dy, chosen}, accumulate, dbias);
}

int put_convolution_backward_input(const CudaStreamHandle* stream, const ConvolutionShape& s,
                                   const float* dy, const std::uint8_t* chosen, const float* weight,
                                   float* dx) {
  const std::size_t k = k_taps * s.outputs;
  return put_product(stream, s.images * s.height * s.width, s.channels, k, k,
                     UnpooledAround{{s.outputs, dy, chosen}, s}, WeightByChannel{s, weight},
                     Store<float>{.c = dx});
}

} // namespace

void set_convolution_kernels(LayerKernels& layers) {
  DTRAIN_PUT(layers, convolution);
  DTRAIN_PUT(layers, convolution_backward_weight);
  DTRAIN_PUT(layers, convolution_backward_input);
}

} // namespace trainer
