// Convolutions as implicit GEMM: the matrices are never stored, each value is read from the image
// or the pool that it belongs to. Letters as in ConvolutionShape; R = 4·N·P pixels in pools, the
// four of a pool in a row, so that four rows of a thread are one pool.
//
//   forward   (R, O) = pixels (R, 9·C) · weightᵀ (9·C, O), pooled in registers
//   weight    (O, 9·C) = dyᵀ (O, R) · pixels (R, 9·C), where dy is 0 except for the chosen
//             pixel. R is long and the result small, so R is split; parts are summed in order
//   input     (S, C) = dy (S, 9·O) · weight (9·O, C), where the S pixels are in squares of four,
//             as in pools, and an odd last row or column is in a square with pixels of no image
//
// Each takes 2·R·9·C·O FLOP and moves at least 4·(N·H·W·C + 9·C·O) + 5·N·P·O bytes. The CNN's
// second convolution has 72 FLOP per byte and is bound by arithmetic (67 TFLOP/s of fp32 on an
// H200). Its first, with one channel, has 17: it has kernels of its own, for few channels. An H200
// does 39, 37 and 27 TFLOP/s of the second's three in float32, held up by loads from shared memory
// and by finding the pixels; in TF32, for --matmul-precision=high, 80, 59 and 45.
#include "trainer/device/cuda/convolution_operands.cuh"
#include "trainer/device/cuda/kernels.h"

namespace trainer {
namespace {

constexpr std::size_t k_few = 4;           ///< Channels.
constexpr unsigned k_outputs_at_once = 32; ///< Of a block.

/// For few channels: a thread computes a pool of four outputs at a time, eight threads the outputs
/// of a block.
template <int V>
__global__ void __launch_bounds__(k_threads)
    forward_of_few_channels(ConvolutionShape s, PixelSquares pools, const float* x,
                            const float* weight, Pool<V> end) {
  DYNAMIC_SHARED(float, weights); // (C, 9, k_outputs_at_once)
  const auto channels = static_cast<unsigned>(s.channels);
  const auto height = static_cast<unsigned>(s.height);
  const auto width = static_cast<unsigned>(s.width);
  const unsigned first_output = blockIdx.y * k_outputs_at_once;
  for (unsigned i = threadIdx.x; i < channels * k_taps * k_outputs_at_once; i += k_threads) {
    const std::size_t output = first_output + i % k_outputs_at_once;
    const unsigned tap = i / k_outputs_at_once % k_taps;
    const unsigned channel = i / k_outputs_at_once / k_taps;
    weights[i] = output < s.outputs ? weight[(output * k_taps + tap) * channels + channel] : 0.0F;
  }
  __syncthreads();
  constexpr unsigned k_across = k_outputs_at_once / k_side;
  constexpr unsigned k_down = k_threads / k_across;
  const unsigned own = threadIdx.x % k_across * k_side;
  for (unsigned pool = blockIdx.x * k_down + threadIdx.x / k_across; pool < pools.all;
       pool += gridDim.x * k_down) {
    const PixelSquare square = pools.find(pool);
    Patch sum = {};
    for (unsigned channel = 0; channel < channels; ++channel) {
      const float* const image = x + square.image * (s.height * s.width * channels) + channel;
      float around[4][4]; // The pool and its neighbours.
      DTRAIN_UNROLL
      for (unsigned i = 0; i < 16; ++i) {
        const unsigned at_y = square.at_y + i / 4 - 1;
        const unsigned at_x = square.at_x + i % 4 - 1;
        around[i / 4][i % 4] =
            at_y < height && at_x < width ? image[(at_y * width + at_x) * channels] : 0.0F;
      }
      DTRAIN_UNROLL
      for (unsigned tap = 0; tap < k_taps; ++tap) {
        const auto of_tap =
            load<k_side>(&weights[(channel * k_taps + tap) * k_outputs_at_once + own]);
        DTRAIN_UNROLL
        for (unsigned i = 0; i < 16; ++i) {
          const unsigned pixel = i / 4;
          sum[pixel][i % 4] += around[tap / 3 + pixel / 2][tap % 3 + pixel % 2] * of_tap.at[i % 4];
        }
      }
    }
    end(sum, pool * k_pool, first_output + own);
  }
}

/// For few channels: one block for each channel and part. A lane has one output, a warp every
/// k_warps-th pool, of which only the chosen pixel counts. Reads 5 bytes per output of a pool, and
/// 9 values of x.
__global__ void __launch_bounds__(k_threads)
    weight_of_few_channels(ConvolutionShape s, PixelSquares pools, const float* x, const float* dy,
                           const std::uint8_t* chosen, float* to) {
  DYNAMIC_SHARED(float, room);    // One value for each warp, tap and lane.
  constexpr unsigned k_ahead = 4; // Pools whose gradients are loaded ahead.
  const unsigned lane = threadIdx.x % k_warp_lanes;
  const unsigned warp = threadIdx.x / k_warp_lanes;
  const unsigned channel = blockIdx.y;
  const auto channels = static_cast<unsigned>(s.channels);
  const auto height = static_cast<unsigned>(s.height);
  const auto width = static_cast<unsigned>(s.width);
  const auto a_part = static_cast<unsigned>(s.pixels_a_part() / k_pool);
  const unsigned first = blockIdx.x * a_part;
  const unsigned last = pools.all - first < a_part ? pools.all : first + a_part;
  for (unsigned output = lane; output < s.outputs + lane; output += k_warp_lanes) {
    float sums[k_taps] = {};
    const bool is_output = output < s.outputs;
    for (unsigned begin = first + warp; is_output && begin < last; begin += k_ahead * k_warps) {
      unsigned which[k_ahead];
      float change[k_ahead];
      DTRAIN_UNROLL
      for (unsigned i = 0; i < k_ahead; ++i) {
        const unsigned pool = begin + i * k_warps;
        const bool is_pool = pool < last;
        which[i] = is_pool ? chosen[pool * s.outputs + output] : k_none_chosen;
        change[i] = is_pool ? dy[pool * s.outputs + output] : 0.0F;
      }
      DTRAIN_UNROLL
      for (unsigned i = 0; i < k_ahead; ++i) {
        const PixelSquare square =
            pools.find(begin + i * k_warps < last ? begin + i * k_warps : begin);
        const unsigned at_y = square.at_y + (which[i] / 2 & 1);
        const unsigned at_x = square.at_x + which[i] % 2;
        const float value = which[i] == k_none_chosen ? 0.0F : change[i];
        const float* const image = x + square.image * (s.height * s.width * s.channels) + channel;
        DTRAIN_UNROLL
        for (unsigned tap = 0; tap < k_taps; ++tap) {
          const unsigned row = at_y + tap / 3 - 1;
          const unsigned column = at_x + tap % 3 - 1;
          const bool is_inside = row < height && column < width;
          sums[tap] += is_inside ? value * image[(row * width + column) * channels] : 0.0F;
        }
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

/// How a product reads and multiplies: V values at once, float32 or rounded to TF32.
template <int V, bool Tf32>
struct Way {};

/// Calls act(a Way): by fours if channels and outputs are fours in memory.
template <typename Act, typename... T>
int by_way(const CudaStreamHandle* stream, const ConvolutionShape& s, const Act& act,
           const T*... arrays) {
  if (s.channels % k_four != 0 || s.outputs % k_four != 0 || !are_fours(arrays...)) {
    return act(Way<1, false>());
  }
  return stream->is_tf32() ? act(Way<k_four, true>()) : act(Way<k_four, false>());
}

template <bool Tf32, typename Act>
int by_columns(std::size_t n, const Act& act) {
  return n <= 32 ? act(PatchTiling<256, 32, 3, Tf32>()) : act(PatchTiling<128, 64, 3, Tf32>());
}

int put_convolution(const CudaStreamHandle* stream, const ConvolutionShape& s, const float* x,
                    const float* weight, const float* bias, float* y, std::uint8_t* chosen) {
  const auto outputs = static_cast<unsigned>(s.outputs);
  const PixelSquares pools = PixelSquares::pools(s);
  if (s.channels <= k_few) {
    const auto put = [&](auto end) {
      constexpr std::size_t k_pools = k_threads / (k_outputs_at_once / k_side);
      return launch(forward_of_few_channels<decltype(end)::k_at_once>,
                    dim3(blocks_for(pools.all, k_pools, 4 * k_most_blocks),
                         tiles_of(s.outputs, k_outputs_at_once)),
                    k_threads, s.channels * k_taps * k_outputs_at_once * sizeof(float), stream, s,
                    pools, x, weight, end);
    };
    return s.outputs % k_four == 0 && are_fours(bias, y, chosen)
               ? put(Pool<k_four>{bias, y, chosen, pools.all, outputs})
               : put(Pool<1>{bias, y, chosen, pools.all, outputs});
  }
  return by_way(
      stream, s,
      [&]<int V, bool Tf32>(Way<V, Tf32> /*way*/) {
        return by_columns<Tf32>(s.outputs, [&]<typename T>(T /*tiling*/) {
          const std::size_t k = k_taps * s.channels;
          return put_patch_product<T>(stream, s.pooled_pixels(), s.outputs, k, k,
                                      Pixels<V, true>{s, x},
                                      Weight<V>{weight, outputs, static_cast<unsigned>(k)},
                                      Pool<V>{bias, y, chosen, pools.all, outputs});
        });
      },
      x, weight, bias, y, chosen);
}

int put_convolution_backward_weight(const CudaStreamHandle* stream, const ConvolutionShape& s,
                                    const float* x, const float* dy, const std::uint8_t* chosen,
                                    bool accumulate, float* room, float* dweight, float* dbias) {
  const std::size_t n = k_taps * s.channels;
  const auto outputs = static_cast<unsigned>(s.outputs);
  const PixelSquares pools = PixelSquares::pools(s);
  int error =
      s.channels <= k_few
          ? launch(weight_of_few_channels,
                   dim3(static_cast<unsigned>(s.parts()), static_cast<unsigned>(s.channels)),
                   k_threads, k_taps * k_threads * sizeof(float), stream, s, pools, x, dy, chosen,
                   room)
          : by_way(
                stream, s,
                [&]<int V, bool Tf32>(Way<V, Tf32> /*way*/) {
                  return put_patch_product<PatchTiling<64, 96, 4, Tf32>>(
                      stream, s.outputs, n, s.pooled_pixels(), s.pixels_a_part(),
                      UnpooledByOutput<V>{{dy, chosen}, outputs, pools.all}, Pixels<V, false>{s, x},
                      StoreParts<V>{room, outputs, static_cast<unsigned>(n)});
                },
                x, dy, chosen, room);
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
  return by_way(
      stream, s,
      [&]<int V, bool Tf32>(Way<V, Tf32> /*way*/) {
        return by_columns<Tf32>(s.channels, [&]<typename T>(T /*tiling*/) {
          const std::size_t k = k_taps * s.outputs;
          const UnpooledAround<V> gradients{{dy, chosen}, s};
          return put_patch_product<T>(
              stream, k_pool * std::size_t{gradients.squares.all}, s.channels, k, k, gradients,
              WeightByChannel<V>{weight, static_cast<unsigned>(s.channels), gradients.outputs},
              StorePixels<V>{s, dx});
        });
      },
      dy, chosen, weight, dx);
}

} // namespace

void set_convolution_kernels(LayerKernels& layers) {
  DTRAIN_PUT(layers, convolution);
  DTRAIN_PUT(layers, convolution_backward_weight);
  DTRAIN_PUT(layers, convolution_backward_input);
}

} // namespace trainer
