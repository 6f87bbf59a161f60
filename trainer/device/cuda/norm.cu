// LayerNorm. Letters as text_kernels.h has them; the values that a kernel reads and writes are
// beside it, of 4 or 2 bytes each.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/product.cuh"

namespace trainer {
namespace {

/// `Kept` fours of a row in a thread's registers: those at threadIdx.x, + blockDim.x, …; zeros past
/// the row's end.
template <int Kept>
struct Fours {
  Pack<float, k_four> at[Kept];

  /// Where number k begins in the row.
  __device__ static std::size_t column(int k) {
    return k_four * (threadIdx.x + static_cast<std::size_t>(k) * blockDim.x);
  }
  template <typename Value>
  __device__ static Fours of(const Value* row, std::size_t width) {
    Fours fours = {};
    for (int k = 0; k < Kept; ++k) {
      if (column(k) < width) {
        fours.at[k] = load_floats<k_four>(row + column(k));
      }
    }
    return fours;
  }
  template <typename Value>
  __device__ void write(std::size_t width, Value* row) const {
    for (int k = 0; k < Kept; ++k) {
      if (column(k) < width) {
        store_floats(at[k], row + column(k));
      }
    }
  }
};

/// How many fours a thread keeps of a row of a norm; 0: they do not lie so, or are too many.
template <typename... T>
std::size_t kept_of(std::size_t width, const T*... arrays) {
  if (width % k_four != 0 || width > 2 * k_four * k_row_threads || !are_fours(arrays...)) {
    return 0;
  }
  return width <= k_four * k_threads ? 1 : 2;
}

/// A block a row, of which the next is loaded meanwhile: a value read, one written.
template <int Kept, typename Value>
__global__ void __launch_bounds__(k_row_threads)
    norm_kept(NormShape s, const Value* x, const float* gain, const float* shift, Value* y,
              float* moments) {
  DYNAMIC_SHARED(float, room);
  using Row = Fours<Kept>;
  const float share = 1.0F / static_cast<float>(s.width);
  const Row gains = Row::of(gain, s.width);
  const Row shifts = Row::of(shift, s.width);
  Row next = Row::of(x + blockIdx.x * s.width, s.width);
  for (std::size_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    Row own = next;
    if (row + gridDim.x < s.rows) {
      next = Row::of(x + (row + gridDim.x) * s.width, s.width);
    }
    float sum[1] = {0};
    for (int k = 0; k < Kept; ++k) {
      for (const float value : own.at[k].at) {
        sum[0] += value;
      }
    }
    block_sums(sum, room);
    const float mean = sum[0] * share;
    float squares[1] = {0};
    for (int k = 0; k < Kept; ++k) {
      for (float& value : own.at[k].at) {
        value -= mean;
        squares[0] += Row::column(k) < s.width ? value * value : 0.0F;
      }
    }
    block_sums(squares, room + k_row_warps); // Behind it all have read the other half.
    const float inverse = 1.0F / sqrtf(squares[0] * share + s.epsilon);
    for (int k = 0; k < Kept; ++k) {
      for (std::size_t i = 0; i < k_four; ++i) {
        own.at[k].at[i] = own.at[k].at[i] * inverse * gains.at[k].at[i] + shifts.at[k].at[i];
      }
    }
    own.write(s.width, y + row * s.width);
    if (threadIdx.x == 0) {
      moments[2 * row] = mean;
      moments[2 * row + 1] = inverse;
    }
  }
}

/// A row of what a norm's gradient comes from.
template <int Kept>
struct NormRow {
  Fours<Kept> x;
  Fours<Kept> dy;
  float mean;
  float inverse;

  template <typename Value>
  __device__ static NormRow of(const NormShape& s, std::size_t row, const Value* x,
                               const float* moments, const Value* dy) {
    return {Fours<Kept>::of(x + row * s.width, s.width),
            Fours<Kept>::of(dy + row * s.width, s.width), moments[2 * row], moments[2 * row + 1]};
  }
};

/// Likewise, two values read and one written; a block's sums of what becomes dgain and dshift are a
/// row of `partial` (blocks, 2, width).
template <int Kept, typename Value>
__global__ void __launch_bounds__(k_row_threads)
    norm_backward_kept(NormShape s, const Value* x, const float* moments, const float* gain,
                       Value* dy, float* partial) {
  DYNAMIC_SHARED(float, room);
  const float share = 1.0F / static_cast<float>(s.width);
  const auto gains = Fours<Kept>::of(gain, s.width);
  Fours<Kept> dgain = {};
  Fours<Kept> dshift = {};
  auto next = NormRow<Kept>::of(s, blockIdx.x, x, moments, dy);
  unsigned half = 0; // Of the room, in turn.
  for (std::size_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    NormRow<Kept> own = next;
    if (row + gridDim.x < s.rows) {
      next = NormRow<Kept>::of(s, row + gridDim.x, x, moments, dy);
    }
    float sums[2] = {0, 0}; // Of the gradient by gain, and of its product with the unit.
    for (int k = 0; k < Kept; ++k) {
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
    for (int k = 0; k < Kept; ++k) {
      for (std::size_t i = 0; i < k_four; ++i) {
        float& change = own.dy.at[k].at[i];
        change = (change - sums[0] * share - own.x.at[k].at[i] * (sums[1] * share)) * own.inverse;
      }
    }
    own.dy.write(s.width, dy + row * s.width);
  }
  float* const own = partial + blockIdx.x * 2 * s.width;
  dgain.write(s.width, own);
  dshift.write(s.width, own + s.width);
}

/// Of columns of (rows, 2, width), where their sums go.
struct NormChanges {
  std::size_t width;
  float* dgain;
  float* dshift;
  __device__ float& operator[](std::size_t column) const {
    return column < width ? dgain[column] : dshift[column - width];
  }
};

/// Any rows, a warp each: a value read, which stays in the caches for two more passes, and one
/// written.
template <typename Value>
__global__ void norm_kernel(NormShape s, const Value* x, const float* gain, const float* shift,
                            Value* y, float* moments) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       row < s.rows; row += std::size_t{gridDim.x} * k_warps) {
    const Value* const from = x + row * s.width;
    float sum = 0;
    for (std::size_t i = lane; i < s.width; i += k_warp_lanes) {
      sum += from[i];
    }
    const float mean = warp_sum(sum) * share;
    float squares = 0;
    for (std::size_t i = lane; i < s.width; i += k_warp_lanes) {
      squares += (from[i] - mean) * (from[i] - mean);
    }
    const float inverse = 1.0F / sqrtf(warp_sum(squares) * share + s.epsilon);
    for (std::size_t i = lane; i < s.width; i += k_warp_lanes) {
      y[row * s.width + i] = (from[i] - mean) * inverse * gain[i] + shift[i];
    }
    if (lane == 0) {
      moments[2 * row] = mean;
      moments[2 * row + 1] = inverse;
    }
  }
}

/// Any rows, a warp each, beside two sums of columns: two values read, one written.
template <typename Value>
__global__ void norm_backward_kernel(NormShape s, const Value* x, const float* moments,
                                     const float* gain, Value* dy) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       row < s.rows; row += std::size_t{gridDim.x} * k_warps) {
    const Value* const from = x + row * s.width;
    Value* const change = dy + row * s.width;
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
      change[i] = (change[i] * gain[i] - mean_gradient - unit * mean_product) * inverse;
    }
  }
}

/// What a norm's gain has as its gradient of a value: for sums over rows, two values read each.
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

template <typename Value>
int put_norm_of(const CudaStreamHandle* stream, const NormShape& s, const Value* x,
                const float* gain, const float* shift, Value* y, float* moments) {
  const std::size_t kept = kept_of(s.width, x, gain, shift, y);
  if (kept == 0) {
    return launch(norm_kernel<Value>, blocks_for(s.rows, k_warps), k_threads, 0, stream, s, x, gain,
                  shift, y, moments);
  }
  const std::size_t rows = s.rows / k_most_blocks; // Eight a block where there are many.
  const unsigned blocks = blocks_for(s.rows, rows < 1 ? 1 : rows < 8 ? rows : 8, 8 * k_most_blocks);
  return launch(kept == 1 ? norm_kept<1, Value> : norm_kept<2, Value>, blocks,
                threads_of_row(s.width, kept), 2 * k_row_warps * sizeof(float), stream, s, x, gain,
                shift, y, moments);
}

int put_norm(const CudaStreamHandle* stream, const NormShape& s, const ConstTypedPointer& x,
             const float* gain, const float* shift, const TypedPointer& y, float* moments) {
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return put_norm_of(stream, s, x.as<Value>(), gain, shift, y.as<Value>(), moments);
  });
}

template <typename Value>
int put_norm_backward_of(const CudaStreamHandle* stream, const NormShape& s, const Value* x,
                         const float* moments, const float* gain, bool accumulate, Value* dy,
                         float* dgain, float* dshift) {
  const std::size_t kept = kept_of(s.width, x, gain, dy);
  if (kept == 0) {
    int error = put_column_sums(stream, s.rows, s.width, GainChange<Value>{s.width, x, moments, dy},
                                accumulate, dgain);
    if (error == 0) {
      error = put_column_sums(stream, s.rows, s.width, Strided<true, Value>{dy, s.width},
                              accumulate, dshift);
    }
    return error != 0 ? error
                      : launch(norm_backward_kernel<Value>, blocks_for(s.rows, k_warps), k_threads,
                               0, stream, s, x, moments, gain, dy);
  }
  // As many as 132 multiprocessors hold at once, of eight rows or more each.
  constexpr std::size_t k_rows_a_block = 8;
  const unsigned threads = threads_of_row(s.width, kept);
  const std::size_t most = 132 * (4 * k_threads / kept / threads);
  const unsigned blocks = blocks_for(s.rows, k_rows_a_block, most);
  auto* const of_columns = reinterpret_cast<float*>(stream->partial);
  float* const partial = of_columns + k_column_partials;
  const int error =
      launch(kept == 1 ? norm_backward_kept<1, Value> : norm_backward_kept<2, Value>, blocks,
             threads, 4 * k_row_warps * sizeof(float), stream, s, x, moments, gain, dy, partial);
  return error != 0
             ? error
             : put_column_sums(stream, blocks, 2 * s.width, Strided<true>{partial, 2 * s.width},
                               accumulate, NormChanges{s.width, dgain, dshift}, of_columns);
}

int put_norm_backward(const CudaStreamHandle* stream, const NormShape& s,
                      const ConstTypedPointer& x, const float* moments, const float* gain,
                      bool accumulate, const TypedPointer& dy, float* dgain, float* dshift) {
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return put_norm_backward_of(stream, s, x.as<Value>(), moments, gain, accumulate, dy.as<Value>(),
                                dgain, dshift);
  });
}

} // namespace

void set_norm_kernels(TextKernels& text) {
  DTRAIN_PUT(text, norm);
  DTRAIN_PUT(text, norm_backward);
}

} // namespace trainer
