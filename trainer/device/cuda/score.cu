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
constexpr int k_parts = 4;                     ///< and warp widths of dx, at a time.

/// One warp per row, one class per lane. Reads x and writes dx once. The weight is copied to shared
/// memory if it fits (`weight_room`: floats).
__global__ void __launch_bounds__(k_threads)
    score_kernel(DenseShape s, const float* x, const float* weight, const float* bias,
                 const std::int32_t* labels, const float* scale, float* change, float* dx,
                 std::size_t weight_room, double* partial, unsigned* arrived, Score* score) {
  DYNAMIC_SHARED(double, room);
  Score before;
  if (threadIdx.x == 0) {
    before = *score; // Host memory is slow: this load overlaps the rest.
  }
  auto* const in_shared = reinterpret_cast<float*>(room + 2 * k_warps);
  for (std::size_t i = threadIdx.x; i < weight_room; i += k_threads) {
    in_shared[i] = weight[i];
  }
  const float* const w = weight_room > 0 ? in_shared : weight;
  const float factor = scale == nullptr ? 0.0F : *scale;
  const unsigned lane = threadIdx.x % k_warp_lanes;
  const unsigned warp = threadIdx.x / k_warp_lanes;
  __syncthreads();
  double sums[2] = {0, 0}; // Loss, and number of correct rows.
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + warp; row < s.rows;
       row += std::size_t{gridDim.x} * k_warps) {
    const float* const from = x + row * s.inputs;
    float z = -INFINITY; // Logit of class `lane`.
    for (std::size_t c = 0; c < s.outputs; c += k_at_once) {
      float products[k_at_once] = {};
      for (std::size_t i = lane; i < s.inputs; i += k_warp_lanes) {
        const float value = from[i];
        DTRAIN_UNROLL
        for (int k = 0; k < k_at_once; ++k) {
          products[k] += c + k < s.outputs ? value * w[(c + k) * s.inputs + i] : 0.0F;
        }
      }
      DTRAIN_UNROLL
      for (int k = 0; k < k_at_once; ++k) {
        const float sum = warp_sum(products[k]);
        z = lane == c + k && lane < s.outputs ? sum + bias[lane] : z;
      }
    }
    float largest = z;
    unsigned which = lane;
    warp_argmax(largest, which);
    const auto label = static_cast<unsigned>(labels[row]);
    const float own = lane < s.outputs ? expf(z - largest) : 0.0F;
    const float sum = warp_sum(own);
    const float dz = (own / sum - (lane == label ? 1.0F : 0.0F)) * factor;
    if (lane < s.outputs) {
      change[row * s.outputs + lane] = dz;
    }
    if (lane == label) {
      sums[0] += double{logf(sum)} - double{z - largest};
      sums[1] += which == label ? 1 : 0;
    }
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
  if (grid_sums(sums, room, partial, arrived) && threadIdx.x == 0) {
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
