// LayerNorm's gradients. Letters as in text_kernels.h. Beside each kernel are the values that it
// reads and writes per value, of 4 or 2 bytes each.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/norm_rows.cuh"
#include "trainer/device/cuda/products/product.cuh"

#include <algorithm>

namespace trainer {
namespace {

/// One warp per row: two values read and one written, and one more read unless `onto` is null. Each
/// block leaves its sums for dgain and dshift in a row of `partial` (blocks, 2, width), adding its
/// warps in turn.
template <int Kept, typename Value>
__global__ void __launch_bounds__(k_threads, Kept <= 3 ? 2 : 1)
    norm_backward_kept(NormShape s, const Value* x, const float* moments, const float* gain,
                       Value* dy, Value* onto, float* partial) {
  DYNAMIC_SHARED(float, room);
  using Row = KeptRow<k_eight, Kept>;
  const Share lanes = of_warp();
  const float share = 1.0F / static_cast<float>(s.width);
  Row sums_of_columns[2] = {}; // For dgain, and dshift.
  for (std::size_t row = first_of_warps(); row < s.rows; row += all_warps()) {
    Row units = Row::of(lanes, x + row * s.width, s.width);
    Row changes = Row::of(lanes, dy + row * s.width, s.width);
    const float mean = moments[2 * row];
    const float inverse = moments[2 * row + 1];
    float of_gradient = 0; // Sums of dy · gain, and of that times the normalised value.
    float of_product = 0;
    Row::each(lanes, s.width, [&](int k, std::size_t column) {
      const auto gains = load<k_eight>(gain + column);
      for (int i = 0; i < k_eight; ++i) {
        float& unit = units.at[k].at[i];
        float& change = changes.at[k].at[i];
        unit = (unit - mean) * inverse;
        sums_of_columns[0].at[k].at[i] += change * unit;
        sums_of_columns[1].at[k].at[i] += change;
        change *= gains.at[i];
        of_gradient += change;
        of_product += change * unit;
      }
    });
    const float mean_gradient = warp_sum(of_gradient) * share;
    const float mean_product = warp_sum(of_product) * share;
    for (int k = 0; k < Kept; ++k) {
      for (int i = 0; i < k_eight; ++i) {
        float& change = changes.at[k].at[i];
        change = (change - mean_gradient - units.at[k].at[i] * mean_product) * inverse;
      }
    }
    Value* const to = onto != nullptr ? onto : dy;
    changes.write_sum(lanes, s.width, onto == nullptr ? nullptr : onto + row * s.width,
                      to + row * s.width);
  }
  for (unsigned turn = 0; turn < k_warps; ++turn) {
    if (threadIdx.x / k_warp_lanes == turn) {
      for (std::size_t which = 0; which < 2; ++which) {
        float* const before = room + which * s.width;
        sums_of_columns[which].write_sum(
            lanes, s.width, turn == 0 ? nullptr : before,
            turn + 1 < k_warps ? before : partial + (2 * blockIdx.x + which) * s.width);
      }
    }
    __syncthreads();
  }
}

constexpr int k_wide_kept = 2; ///< Fours per thread, for rows that a block processes,
constexpr std::size_t k_widest = k_wide_kept * k_four * k_row_threads; ///< and the widest such row.
using WideRow = KeptRow<k_four, k_wide_kept>;

/// One row of the inputs of a norm's gradient.
struct WideNormRow {
  WideRow x;
  WideRow dy;
  float mean;
  float inverse;

  template <typename Value>
  __device__ static WideNormRow of(const NormShape& s, std::size_t row, const Value* x,
                                   const float* moments, const Value* dy) {
    return {WideRow::of(of_block(), x + row * s.width, s.width),
            WideRow::of(of_block(), dy + row * s.width, s.width), moments[2 * row],
            moments[2 * row + 1]};
  }
};

/// As norm_backward_kept(), one block per row, loading the next row meanwhile.
template <typename Value>
__global__ void __launch_bounds__(k_row_threads)
    norm_backward_wide(NormShape s, const Value* x, const float* moments, const float* gain,
                       Value* dy, Value* onto, float* partial) {
  DYNAMIC_SHARED(float, room);
  const float share = 1.0F / static_cast<float>(s.width);
  const auto gains = WideRow::of(of_block(), gain, s.width);
  WideRow dgain = {};
  WideRow dshift = {};
  auto next = WideNormRow::of(s, blockIdx.x, x, moments, dy);
  unsigned half = 0; // Half of the room, alternating.
  for (std::size_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    WideNormRow own = next;
    if (row + gridDim.x < s.rows) {
      next = WideNormRow::of(s, row + gridDim.x, x, moments, dy);
    }
    float sums[2] = {0, 0}; // Sums of dy · gain, and of that times the normalised value.
    for (int k = 0; k < k_wide_kept; ++k) {
      for (std::size_t i = 0; i < k_four; ++i) {
        float& unit = own.x.at[k].at[i];
        float& change = own.dy.at[k].at[i];
        unit = (unit - own.mean) * own.inverse;
        dshift.at[k].at[i] += change;
        dgain.at[k].at[i] += change * unit;
        change *= gains.at[k].at[i];
        sums[0] += change;
        sums[1] += change * unit;
      }
    }
    block_sums(sums, room + half * 2 * k_row_warps);
    half ^= 1U;
    for (int k = 0; k < k_wide_kept; ++k) {
      for (std::size_t i = 0; i < k_four; ++i) {
        float& change = own.dy.at[k].at[i];
        change = (change - sums[0] * share - own.x.at[k].at[i] * (sums[1] * share)) * own.inverse;
      }
    }
    Value* const to = onto != nullptr ? onto : dy;
    own.dy.write_sum(of_block(), s.width, onto == nullptr ? nullptr : onto + row * s.width,
                     to + row * s.width);
  }
  float* const own = partial + blockIdx.x * 2 * s.width;
  dgain.write(of_block(), s.width, own);
  dshift.write(of_block(), s.width, own + s.width);
}

/// Where the sums of columns of (rows, 2, width) go.
struct NormChanges {
  std::size_t width;
  float* dgain;
  float* dshift;
  __device__ float& operator[](std::size_t column) const {
    return column < width ? dgain[column] : dshift[column - width];
  }
};

/// Any rows, one warp each, without the sums of columns: two values read, one written, and one more
/// read unless `onto` is null.
template <typename Value>
__global__ void norm_backward_kernel(NormShape s, const Value* x, const float* moments,
                                     const float* gain, Value* dy, Value* onto) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       row < s.rows; row += std::size_t{gridDim.x} * k_warps) {
    const Value* const from = x + row * s.width;
    const Value* const change = dy + row * s.width;
    Value* const to = (onto != nullptr ? onto : dy) + row * s.width;
    const float mean = moments[2 * row];
    const float inverse = moments[2 * row + 1];
    float of_gradient = 0;
    float of_product = 0;
    for (std::size_t i = lane; i < s.width; i += k_warp_lanes) {
      const float g = change[i] * gain[i];
      of_gradient += g;
      of_product += g * ((from[i] - mean) * inverse);
    }
    const float mean_gradient = warp_sum(of_gradient) * share;
    const float mean_product = warp_sum(of_product) * share;
    for (std::size_t i = lane; i < s.width; i += k_warp_lanes) {
      const float unit = (from[i] - mean) * inverse;
      const float dx = (change[i] * gain[i] - mean_gradient - unit * mean_product) * inverse;
      to[i] = onto != nullptr ? dx + to[i] : dx;
    }
  }
}

/// One value's part of the gradient of the gain, for sums over rows: two values read.
template <typename Value>
struct GainChange {
  std::size_t width;
  const Value* x;
  const float* moments;
  const Value* dy;
  __device__ float operator()(std::size_t row, std::size_t column) const {
    const std::size_t i = row * width + column;
    return dy[i] * ((x[i] - moments[2 * row]) * moments[2 * row + 1]);
  }
};

/// The arguments of put_norm_backward(), typed.
template <typename Value>
struct NormBackward {
  NormShape shape;
  const Value* x;
  const float* moments;
  const float* gain;
  bool accumulate;
  Value* dy;
  Value* onto;
  float* dgain;
  float* dshift;
};

/// Where blocks leave their sums of columns, after the room of the sums' own reduction.
float* norm_partials(const CudaStreamHandle* stream) {
  return reinterpret_cast<float*>(stream->partial) + k_column_partials;
}

/// Number of blocks for so many per multiprocessor, limited by the room for their sums of columns.
std::size_t most_norm_blocks(const CudaStreamHandle* stream, const NormShape& s,
                             std::size_t a_multiprocessor) {
  constexpr std::size_t k_floats =
      k_cuda_partials * sizeof(double) / sizeof(float) - k_column_partials;
  return std::min(stream->multiprocessors * a_multiprocessor, k_floats / (2 * s.width));
}

/// dgain and dshift from the sums that the blocks have left.
template <typename Value>
int put_norm_columns(const CudaStreamHandle* stream, const NormBackward<Value>& g,
                     unsigned blocks) {
  const std::size_t width = g.shape.width;
  return put_column_sums(stream, blocks, 2 * width, Strided<true>{norm_partials(stream), 2 * width},
                         g.accumulate, NormChanges{width, g.dgain, g.dshift},
                         reinterpret_cast<float*>(stream->partial));
}

template <typename Value>
int put_any_norm_backward(const CudaStreamHandle* stream, const NormBackward<Value>& g) {
  const NormShape& s = g.shape;
  int error =
      put_column_sums(stream, s.rows, s.width, GainChange<Value>{s.width, g.x, g.moments, g.dy},
                      g.accumulate, g.dgain);
  if (error == 0) {
    error = put_column_sums(stream, s.rows, s.width, Strided<true, Value>{g.dy, s.width},
                            g.accumulate, g.dshift);
  }
  return error != 0 ? error
                    : launch(norm_backward_kernel<Value>, blocks_for(s.rows, k_warps), k_threads, 0,
                             stream, s, g.x, g.moments, g.gain, g.dy, g.onto);
}

/// For rows of fours, at most k_widest wide, eight or more per block.
template <typename Value>
int put_wide_norm_backward(const CudaStreamHandle* stream, const NormBackward<Value>& g) {
  constexpr std::size_t k_rows_a_block = 8;
  const NormShape& s = g.shape;
  const unsigned threads = threads_of_row(s.width, k_wide_kept);
  const unsigned blocks = blocks_for(
      s.rows, k_rows_a_block, most_norm_blocks(stream, s, 4 * k_threads / k_wide_kept / threads));
  const int error =
      launch(norm_backward_wide<Value>, blocks, threads, 4 * k_row_warps * sizeof(float), stream, s,
             g.x, g.moments, g.gain, g.dy, g.onto, norm_partials(stream));
  return error != 0 ? error : put_norm_columns(stream, g, blocks);
}

/// For rows of which a lane keeps so many eights.
template <int Kept, typename Value>
int put_kept_norm_backward(const CudaStreamHandle* stream, const NormBackward<Value>& g) {
  const NormShape& s = g.shape;
  const unsigned blocks =
      blocks_for(s.rows, k_warps, most_norm_blocks(stream, s, Kept <= 3 ? 2 : 1));
  const int error =
      launch(norm_backward_kept<Kept, Value>, blocks, k_threads, 2 * s.width * sizeof(float),
             stream, s, g.x, g.moments, g.gain, g.dy, g.onto, norm_partials(stream));
  return error != 0 ? error : put_norm_columns(stream, g, blocks);
}

template <typename Value>
int put_norm_backward_of(const CudaStreamHandle* stream, const NormBackward<Value>& g) {
  constexpr int k_most_kept = 4;
  const std::size_t width = g.shape.width;
  const bool is_wide =
      width % k_four == 0 && width <= k_widest && are_fours(g.x, g.gain, g.dy, g.onto);
  return by_kept<k_most_kept>(
      width, [&](auto kept) { return put_kept_norm_backward<kept>(stream, g); },
      [&] {
        return is_wide ? put_wide_norm_backward(stream, g) : put_any_norm_backward(stream, g);
      },
      g.x, g.gain, g.dy, g.onto);
}

int put_norm_backward(const CudaStreamHandle* stream, const NormShape& s,
                      const ConstTypedPointer& x, const float* moments, const float* gain,
                      bool accumulate, const TypedPointer& dy, const TypedPointer& onto,
                      float* dgain, float* dshift) {
  stream->narrowed->forget(dy, s.rows * s.width);
  if (onto) {
    stream->narrowed->forget(onto, s.rows * s.width);
  }
  stream->narrowed->forget(dgain, s.width);
  stream->narrowed->forget(dshift, s.width);
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return put_norm_backward_of(stream, NormBackward<Value>{s, x.as<Value>(), moments, gain,
                                                            accumulate, dy.as<Value>(),
                                                            onto.as<Value>(), dgain, dshift});
  });
}

} // namespace

void set_norm_backward_kernels(TextKernels& text) { DTRAIN_PUT_AND_TELL(text, norm_backward); }

} // namespace trainer
