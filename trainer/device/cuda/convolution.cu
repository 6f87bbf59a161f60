// Convolutions as implicit GEMM: the matrices are never stored, each value is read from the image
// or the pool that it belongs to. Letters as in ConvolutionShape; R = 4·N·P pixels in pools, the
// four of a pool in a row, so that four rows of a thread are one pool.
//
//   forward   (R, O) = pixels (R, 9·C) · weightᵀ (9·C, O), pooled in registers
//   weight    (O, 9·C) = dyᵀ (O, R) · pixels (R, 9·C), where dy is 0 except for the chosen
//             pixel. R is long and the result small, so R is split; parts are summed in order
//   input     (N·H·W, C) = dy (N·H·W, 9·O) · weight (9·O, C)
//
// Each takes 2·R·9·C·O FLOP and moves at least 4·(N·H·W·C + 9·C·O) + 5·N·P·O bytes. The CNN's
// second convolution has 72 FLOP per byte and is bound by arithmetic (67 TFLOP/s of fp32 on an
// H200); its first, with one channel, has 17, about even with memory.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/product.cuh"

namespace trainer {
namespace {

constexpr std::size_t k_taps = 9;
constexpr std::uint8_t k_none_chosen = 4;
constexpr int k_pool = 4; ///< Pixels of a pool.
static_assert(k_own_rows % k_pool == 0, "a thread's rows are whole pools");

/// The inputs (row, tap·C + channel) of pixel `row` of a pool; 0 outside the image.
template <bool AlongSteps>
struct Pixels {
  static constexpr bool k_along_steps = AlongSteps;
  ConvolutionShape s;
  const float* x;

  struct Row {
    const float* first; ///< First pixel of its image.
    unsigned at_y;
    unsigned at_x;
  };
  struct Column {
    unsigned at_y; ///< The tap's offset plus one: 0 and height + 1 are outside.
    unsigned at_x;
    unsigned channel;
  };
  __device__ auto kept(Line /*of*/, unsigned i) const {
    if constexpr (AlongSteps) {
      return row_of(i);
    } else {
      return column_of(i);
    }
  }
  __device__ auto kept(Step /*of*/, unsigned i) const {
    if constexpr (AlongSteps) {
      return column_of(i);
    } else {
      return row_of(i);
    }
  }
  __device__ float operator()(const Row& row, const Column& column) const {
    const unsigned at_y = row.at_y + column.at_y - 1;
    const unsigned at_x = row.at_x + column.at_x - 1;
    const auto height = static_cast<unsigned>(s.height);
    const auto width = static_cast<unsigned>(s.width);
    return at_y < height && at_x < width
               ? row.first[(at_y * width + at_x) * static_cast<unsigned>(s.channels) +
                           column.channel]
               : 0.0F;
  }
  __device__ float operator()(const Column& column, const Row& row) const {
    return (*this)(row, column);
  }

 private:
  __device__ Row row_of(unsigned row) const {
    const auto pools = static_cast<unsigned>(s.pools());
    const auto across = static_cast<unsigned>(s.width / 2);
    const unsigned pool = row / 4 % pools;
    return {x + row / 4 / pools * (s.height * s.width * s.channels),
            pool / across * 2 + row % 4 / 2, pool % across * 2 + row % 2};
  }
  __device__ Column column_of(unsigned column) const {
    const auto channels = static_cast<unsigned>(s.channels);
    const unsigned tap = column / channels;
    return {tap / 3, tap % 3, column % channels};
  }
};

/// The gradient of pixels before pooling.
struct Unpooled {
  const float* dy;
  const std::uint8_t* chosen;

  /// The gradient of pixel `quarter` of pool value i.
  __device__ float at(std::size_t i, unsigned quarter) const {
    const float change = dy[i]; // Unconditional, so that both loads are in flight at once.
    return chosen[i] == quarter ? change : 0.0F;
  }
};

struct UnpooledByOutput : Unpooled { ///< (output, row)
  static constexpr bool k_along_steps = false;
  std::size_t outputs;

  struct Row {
    std::size_t first; ///< First value of its pool.
    unsigned quarter;
  };
  __device__ Row kept(Step /*of*/, unsigned row) const { return {row / 4 * outputs, row % 4}; }
  __device__ float operator()(std::size_t output, const Row& row) const {
    return at(row.first + output, row.quarter);
  }
};

struct UnpooledAround : Unpooled { ///< (pixel of the image, tap·O + output)
  static constexpr bool k_along_steps = true;
  ConvolutionShape s;

  struct Pixel {
    std::size_t first_pool; ///< First pool of its image.
    unsigned at_y;
    unsigned at_x;
  };
  struct Tap { ///< Offset, plus one, of the output that reads a pixel through this tap.
    unsigned at_y;
    unsigned at_x;
    unsigned output;
  };
  __device__ Pixel kept(Line /*of*/, unsigned pixel) const {
    const auto width = static_cast<unsigned>(s.width);
    const auto height = static_cast<unsigned>(s.height);
    return {pixel / (width * height) * s.pools(), pixel / width % height, pixel % width};
  }
  __device__ Tap kept(Step /*of*/, unsigned i) const {
    const auto outputs = static_cast<unsigned>(s.outputs);
    const unsigned tap = i / outputs;
    return {2 - tap / 3, 2 - tap % 3, i % outputs};
  }
  __device__ float operator()(const Pixel& pixel, const Tap& tap) const {
    const unsigned at_y = pixel.at_y + tap.at_y - 1;
    const unsigned at_x = pixel.at_x + tap.at_x - 1;
    const auto across = static_cast<unsigned>(s.width / 2);
    if (at_y >= static_cast<unsigned>(s.height / 2 * 2) || at_x >= across * 2) {
      return 0;
    }
    const std::size_t pool = pixel.first_pool + at_y / 2 * across + at_x / 2;
    return at(pool * s.outputs + tap.output, at_y % 2 * 2 + at_x % 2);
  }
};

struct WeightByChannel { ///< (channel, tap·O + output)
  static constexpr bool k_along_steps = false;
  ConvolutionShape s;
  const float* weight;

  __device__ const float* kept(Step /*of*/, unsigned i) const {
    const auto outputs = static_cast<unsigned>(s.outputs);
    return weight + (i % outputs * k_taps + i / outputs) * s.channels;
  }
  __device__ float operator()(std::size_t channel, const float* of_step) const {
    return of_step[channel];
  }
};

/// Pools whose maximum is above 0.
struct Pooled {
  std::size_t outputs;
  const float* dy;
  const std::uint8_t* chosen;
  __device__ float operator()(std::size_t pool, std::size_t output) const {
    const std::size_t i = pool * outputs + output;
    return chosen[i] == k_none_chosen ? 0.0F : dy[i];
  }
};

/// A thread's rows are whole pools, four rows each. Keeps a NaN.
struct Pool {
  const float* bias;
  float* y;
  std::uint8_t* chosen;

  __device__ void operator()(const Tile& sum, const TilePlace& place, const Extent& size) const {
    DTRAIN_UNROLL
    for (int first = 0; first < k_own_rows; first += k_pool) {
      DTRAIN_UNROLL
      for (int own = 0; own < k_own_columns; ++own) {
        const std::size_t row = place.row + first;
        const std::size_t output = place.column + own * place.apart;
        if (row >= size.m || output >= size.n) {
          continue;
        }
        float best = sum[first][own];
        std::uint8_t which = 0;
        DTRAIN_UNROLL
        for (int i = 1; i < k_pool; ++i) {
          if (!(sum[first + i][own] <= best) && !isnan(best)) {
            best = sum[first + i][own];
            which = static_cast<std::uint8_t>(i);
          }
        }
        best += bias[output];
        const bool dies = best <= 0;
        y[row / k_pool * size.n + output] = dies ? 0.0F : best;
        chosen[row / k_pool * size.n + output] = dies ? k_none_chosen : which;
      }
    }
  }
};

/// For few channels: one block for each channel and part. A lane has one output, a warp every
/// k_warps-th pool, of which only the chosen pixel counts. Reads 5 bytes per output of a pool, and
/// 9 values of x.
__global__ void __launch_bounds__(k_threads)
    weight_of_few_channels(ConvolutionShape s, const float* x, const float* dy,
                           const std::uint8_t* chosen, float* to) {
  DYNAMIC_SHARED(float, room); // One value for each warp, tap and lane.
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const unsigned warp = threadIdx.x / k_warp_lanes;
  const std::size_t channel = blockIdx.y;
  const auto pools = static_cast<unsigned>(s.pools());
  const auto across = static_cast<unsigned>(s.width / 2);
  const std::size_t all = s.images * pools;
  const std::size_t a_part = s.pixels_a_part() / k_pool;
  const std::size_t first = blockIdx.x * a_part;
  const std::size_t last = first + a_part;
  for (std::size_t output = lane; output < s.outputs + lane; output += k_warp_lanes) {
    float sums[k_taps] = {};
    const bool is_output = output < s.outputs;
    for (std::size_t pool = first + warp; is_output && pool < all && pool < last; pool += k_warps) {
      const unsigned which = chosen[pool * s.outputs + output];
      const float change = which == k_none_chosen ? 0.0F : dy[pool * s.outputs + output];
      const unsigned in_image = static_cast<unsigned>(pool) % pools;
      const unsigned at_y = in_image / across * 2 + (which / 2 & 1);
      const unsigned at_x = in_image % across * 2 + which % 2;
      const float* const image = x + pool / pools * (s.height * s.width * s.channels) + channel;
      DTRAIN_UNROLL
      for (unsigned tap = 0; tap < k_taps; ++tap) {
        const unsigned row = at_y + tap / 3 - 1;
        const unsigned column = at_x + tap % 3 - 1;
        const bool is_inside = row < s.height && column < s.width;
        sums[tap] += is_inside ? change * image[(row * s.width + column) * s.channels] : 0.0F;
      }
    }
    for (unsigned tap = 0; tap < k_taps; ++tap) {
      room[(warp * k_taps + tap) * k_warp_lanes + lane] = sums[tap];
    }
    __syncthreads();
    for (unsigned tap = warp; is_output && tap < k_taps; tap += k_warps) {
      float sum = 0;
      for (unsigned other = 0; other < k_warps; ++other) {
        sum += room[(other * k_taps + tap) * k_warp_lanes + lane];
      }
      to[((blockIdx.x * s.outputs + output) * k_taps + tap) * s.channels + channel] = sum;
    }
    __syncthreads();
  }
}

template <typename A, typename B, typename End>
int put_by_width(const CudaStreamHandle* stream, std::size_t m, std::size_t n, std::size_t k,
                 const A& a, const B& b, const End& end) {
  return n <= Narrow::k_columns ? put_product<Narrow>(stream, m, n, k, k, a, b, end)
                                : put_product<Square>(stream, m, n, k, k, a, b, end);
}

int put_convolution(const CudaStreamHandle* stream, const ConvolutionShape& s, const float* x,
                    const float* weight, const float* bias, float* y, std::uint8_t* chosen) {
  const std::size_t k = k_taps * s.channels;
  return put_by_width(stream, s.pooled_pixels(), s.outputs, k, Pixels<true>{s, x},
                      Strided<true>{weight, k}, Pool{bias, y, chosen});
}

int put_convolution_backward_weight(const CudaStreamHandle* stream, const ConvolutionShape& s,
                                    const float* x, const float* dy, const std::uint8_t* chosen,
                                    bool accumulate, float* room, float* dweight, float* dbias) {
  constexpr std::size_t k_few = 4;
  const std::size_t n = k_taps * s.channels;
  int error =
      s.channels <= k_few
          ? launch(weight_of_few_channels,
                   dim3(static_cast<unsigned>(s.parts()), static_cast<unsigned>(s.channels)),
                   k_threads, k_taps * k_threads * sizeof(float), stream, s, x, dy, chosen, room)
          : put_product(stream, s.outputs, n, s.pooled_pixels(), s.pixels_a_part(),
                        UnpooledByOutput{{dy, chosen}, s.outputs}, Pixels<false>{s, x},
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
  return put_by_width(stream, s.images * s.height * s.width, s.channels, k,
                      UnpooledAround{{dy, chosen}, s}, WeightByChannel{s, weight},
                      Store<float>{.c = dx});
}

} // namespace

void set_convolution_kernels(LayerKernels& layers) {
  DTRAIN_PUT(layers, convolution);
  DTRAIN_PUT(layers, convolution_backward_weight);
  DTRAIN_PUT(layers, convolution_backward_input);
}

} // namespace trainer
