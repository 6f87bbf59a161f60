// LayerNorm. Letters as in text_kernels.h. Beside each kernel are the values that it reads and
// writes per value, of 4 or 2 bytes each.
#include "trainer/device/cuda/dropped.cuh"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/norm_rows.cuh"
#include "trainer/device/cuda/products/product.cuh"

namespace trainer {
namespace {

/// What is to be added to the rows before they are normalised, and the rows themselves; nothing.
template <typename Value>
struct Added {
  Dropped dropped = {};
  const Value* residual = nullptr;
  Value* x = nullptr;
};

/// x = dropped x + residual of a row whose `kept` packs are x's, which then hold what was written.
template <int N, int Kept, typename Value>
__device__ void add_kept(const Share& share, const NormShape& s, std::size_t row,
                         const Added<Value>& added, KeptRow<N, Kept>& kept) {
  KeptRow<N, Kept>::each(share, s.width, [&](int k, std::size_t column) {
    const std::size_t at = row * s.width + column;
    const Pack<float, N> rest = load_floats<N>(added.residual + at);
    const Pack<float, N> by = drop_factors<N>(added.dropped, row * keep_words(s.width), column);
    for (int i = 0; i < N; ++i) {
      const Value sum = kept.at[k].at[i] * by.at[i] + rest.at[i];
      kept.at[k].at[i] = sum;
    }
    store_floats(kept.at[k], added.x + at);
  });
}

/// One warp per row: one value read, one written; with `Adds` one more read and one more written.
template <int Kept, bool Adds, typename Value>
__global__ void __launch_bounds__(k_threads)
    norm_kept(NormShape s, Added<Value> added, const Value* x, const float* gain,
              const float* shift, Value* y, float* moments) {
  using Row = KeptRow<k_eight, Kept>;
  const Share lanes = of_warp();
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = first_of_warps(); row < s.rows; row += all_warps()) {
    Row own = Row::of(lanes, x + row * s.width, s.width);
    if constexpr (Adds) {
      add_kept(lanes, s, row, added, own);
    }
    float sum = 0;
    for (int k = 0; k < Kept; ++k) {
      for (const float value : own.at[k].at) {
        sum += value;
      }
    }
    const float mean = warp_sum(sum) * share;
    float squares = 0;
    Row::each(lanes, s.width, [&](int k, std::size_t /*column*/) {
      for (float& value : own.at[k].at) {
        value -= mean;
        squares += value * value;
      }
    });
    const float inverse = 1.0F / sqrtf(warp_sum(squares) * share + s.epsilon);
    Row::each(lanes, s.width, [&](int k, std::size_t column) {
      const auto gains = load<k_eight>(gain + column);
      const auto shifts = load<k_eight>(shift + column);
      for (int i = 0; i < k_eight; ++i) {
        own.at[k].at[i] = own.at[k].at[i] * inverse * gains.at[i] + shifts.at[i];
      }
    });
    own.write(lanes, s.width, y + row * s.width);
    if (lanes.first == 0) {
      moments[2 * row] = mean;
      moments[2 * row + 1] = inverse;
    }
  }
}

/// Any rows, one warp each: one value read, which stays in the caches for two more passes, and one
/// written; with `Adds` one more each.
template <bool Adds, typename Value>
__global__ void norm_kernel(NormShape s, Added<Value> added, const Value* x, const float* gain,
                            const float* shift, Value* y, float* moments) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       row < s.rows; row += std::size_t{gridDim.x} * k_warps) {
    const Value* const from = x + row * s.width;
    float sum = 0;
    for (std::size_t i = lane; i < s.width; i += k_warp_lanes) {
      if constexpr (Adds) {
        const std::size_t at = row * s.width + i;
        added.x[at] = added.x[at] * drop_factor(added.dropped, row * keep_words(s.width), i) +
                      added.residual[at];
      }
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

template <bool Adds, typename Value>
int put_norm_of(const CudaStreamHandle* stream, const NormShape& s, const Added<Value>& added,
                const Value* x, const float* gain, const float* shift, Value* y, float* moments) {
  constexpr int k_most_kept = 16;
  return by_kept<k_most_kept>(
      s.width,
      [&](auto kept) {
        return launch(norm_kept<kept, Adds, Value>, blocks_for(s.rows, k_warps, 8 * k_most_blocks),
                      k_threads, 0, stream, s, added, x, gain, shift, y, moments);
      },
      [&] {
        return launch(norm_kernel<Adds, Value>, blocks_for(s.rows, k_warps), k_threads, 0, stream,
                      s, added, x, gain, shift, y, moments);
      },
      x, gain, shift, y, added.residual);
}

int put_norm(const CudaStreamHandle* stream, const NormShape& s, const ConstTypedPointer& x,
             const float* gain, const float* shift, const TypedPointer& y, float* moments) {
  stream->narrowed->forget(y, s.rows * s.width);
  stream->narrowed->forget(moments, 2 * s.rows);
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return put_norm_of<false>(stream, s, Added<Value>(), x.as<Value>(), gain, shift, y.as<Value>(),
                              moments);
  });
}

int put_add_and_norm(const CudaStreamHandle* stream, const NormShape& s, const Dropped& dropped,
                     const ConstTypedPointer& residual, const TypedPointer& x, const float* gain,
                     const float* shift, const TypedPointer& y, float* moments) {
  stream->narrowed->forget(x, s.rows * s.width);
  stream->narrowed->forget(y, s.rows * s.width);
  stream->narrowed->forget(moments, 2 * s.rows);
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    const Added<Value> added{dropped, residual.as<Value>(), x.as<Value>()};
    return put_norm_of<true>(stream, s, added, x.as<Value>(), gain, shift, y.as<Value>(), moments);
  });
}

} // namespace

void set_norm_kernels(TextKernels& text) {
  DTRAIN_PUT_AND_TELL(text, norm);
  DTRAIN_PUT_AND_TELL(text, add_and_norm);
}

} // namespace trainer
