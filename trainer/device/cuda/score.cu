// The end of a classifier of few classes in one kernel, row by row: the product of its last layer,
// softmax, cross-entropy, and the gradient of the layer's input. For the MLP's 64 rows of 128
// values and 10 classes, each of the four alone would take as long as a launch. Memory latency
// dominates, so a block requests all that it needs at once.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/sums.cuh"

namespace trainer {
namespace {

constexpr std::size_t k_most_in_shared = 8192; ///< Largest weight in floats.
constexpr int k_at_once = 8;                   ///< Classes,
constexpr int k_parts = 4;                     ///< and warp widths of x or dx, at a time.

/// k_parts · k_warp_lanes values of a row of x, spread over a warp.
using Part = float[k_parts];

struct Row {
  Part x = {}; ///< Its first values.
  unsigned label = 0;
};

__device__ void load_part(const DenseShape& s, const float* from, std::size_t first, Part& to) {
  DTRAIN_UNROLL
  for (int part = 0; part < k_parts; ++part) {
    const std::size_t i = first + part * k_warp_lanes;
    to[part] = i < s.inputs ? from[i] : 0.0F;
  }
}

/// The product of a row, which begins with `x`, with the weight of class `lane`.
__device__ float logit(const DenseShape& s, const float* from, const Part& x, const float* w,
                       unsigned lane) {
  float z = 0;
  for (std::size_t c = 0; c < s.outputs; c += k_at_once) {
    float products[k_at_once] = {};
    for (std::size_t first = lane; first < s.inputs + lane; first += k_parts * k_warp_lanes) {
      Part loaded;
      if (first > lane) {
        load_part(s, from, first, loaded);
      }
      DTRAIN_UNROLL
      for (int part = 0; part < k_parts; ++part) {
        const std::size_t i = first + part * k_warp_lanes;
        const float value = first > lane ? loaded[part] : x[part];
        DTRAIN_UNROLL
        for (int k = 0; k < k_at_once; ++k) {
          products[k] +=
              i < s.inputs && c + k < s.outputs ? value * w[(c + k) * s.inputs + i] : 0.0F;
        }
      }
    }
    warp_sums(products);
    const unsigned in_group =
        lane - static_cast<unsigned>(c); // Whose sum lanes 4 · it and on have.
    const float sum =
        __shfl_sync(k_all_lanes, products[0],
                    static_cast<int>(in_group * (k_warp_lanes / k_at_once) % k_warp_lanes));
    z = in_group < k_at_once ? sum : z;
  }
  return z;
}

/// One warp per row, one class per lane. Reads x once if a row fits in registers, and writes dx
/// once. The weight is copied to shared memory if it fits (`weight_room`: floats).
__global__ void __launch_bounds__(k_threads)
    score_kernel(DenseShape s, const float* x, const float* weight, const float* bias,
                 const std::int32_t* labels, const float* scale, float* change, float* dx,
                 std::size_t weight_room, double* partial, unsigned* arrived, Score* score) {
  DYNAMIC_SHARED(double, room);
  Score before;
  if (threadIdx.x == 0) {
    before = *score; // Host memory is slow: this load overlaps the rest.
  }
  const unsigned lane = threadIdx.x % k_warp_lanes;
  const unsigned warp = threadIdx.x / k_warp_lanes;
  const auto row_of = [&](std::size_t row) { // Loads what is needed of a row at once.
    Row found;
    if (row < s.rows) {
      load_part(s, x + row * s.inputs, lane, found.x);
      found.label = static_cast<unsigned>(labels[row]);
    }
    return found;
  };
  const std::size_t first_row = std::size_t{blockIdx.x} * k_warps + warp;
  Row next = row_of(first_row);
  const float own_bias = lane < s.outputs ? bias[lane] : 0.0F;
  const float factor = scale == nullptr ? 0.0F : *scale;
  auto* const in_shared = reinterpret_cast<float*>(room + 2 * k_warps);
  for (std::size_t i = threadIdx.x; i < weight_room; i += k_threads) {
    in_shared[i] = weight[i];
  }
  const float* const w = weight_room > 0 ? in_shared : weight;
  __syncthreads();
  double sums[2] = {0, 0}; // Of the warp: loss, and number of correct rows.
  for (std::size_t row = first_row; row < s.rows; row += std::size_t{gridDim.x} * k_warps) {
    const Row own_row = next;
    next = row_of(row + std::size_t{gridDim.x} * k_warps);
    const float* const from = x + row * s.inputs;
    const float z = logit(s, from, own_row.x, w, lane) + own_bias; // Of class `lane`.
    float largest = lane < s.outputs ? z : -INFINITY;
    unsigned which = lane;
    warp_argmax(largest, which);
    const float own = lane < s.outputs ? expf(z - largest) : 0.0F;
    const float sum = warp_sum(own);
    const float dz = (own / sum - (lane == own_row.label ? 1.0F : 0.0F)) * factor;
    if (lane < s.outputs) {
      change[row * s.outputs + lane] = dz;
    }
    const float of_label = __shfl_sync(k_all_lanes, z, static_cast<int>(own_row.label));
    sums[0] += double{logf(sum)} - double{of_label - largest};
    sums[1] += which == own_row.label ? 1 : 0;
    for (std::size_t first = lane; dx != nullptr && first < s.inputs + lane;
         first += k_parts * k_warp_lanes) {
      float values[k_parts] = {};
      for (std::size_t c = 0; c < s.outputs; ++c) {
        const float of_class = __shfl_sync(k_all_lanes, dz, static_cast<int>(c));
        DTRAIN_UNROLL
        for (int part = 0; part < k_parts; ++part) {
          const std::size_t i = first + part * k_warp_lanes;
          values[part] += i < s.inputs ? of_class * w[c * s.inputs + i] : 0.0F;
        }
      }
      DTRAIN_UNROLL
      for (int part = 0; part < k_parts; ++part) {
        const std::size_t i = first + part * k_warp_lanes;
        if (i < s.inputs) {
          dx[row * s.inputs + i] = from[i] > 0 ? values[part] : 0.0F;
        }
      }
    }
  }
  const bool is_last = sums_of_parts(sums, lane == 0, blockIdx.x * k_warps + warp,
                                     gridDim.x * k_warps, room, partial, arrived);
  if (is_last && threadIdx.x == 0) {
    before.loss += sums[0];
    before.correct += static_cast<std::int64_t>(sums[1]);
    before.count += static_cast<std::int64_t>(s.rows);
    *score = before;
  }
}

int put_score(const CudaStreamHandle* stream, const DenseShape& shape, const float* x,
              const float* weight, const float* bias, const std::int32_t* labels,
              const float* scale, float* change, float* dx, Score* score) {
  const std::size_t weights = shape.inputs * shape.outputs;
  const std::size_t weight_room = weights <= k_most_in_shared ? weights : 0;
  return launch(score_kernel, blocks_for(shape.rows, k_warps), k_threads,
                2 * k_warps * sizeof(double) + weight_room * sizeof(float), stream, shape, x,
                weight, bias, labels, scale, change, dx, weight_room, stream->partial,
                stream->arrived, score);
}

} // namespace

void set_score_kernels(LayerKernels& layers) { DTRAIN_PUT(layers, score); }

} // namespace trainer
