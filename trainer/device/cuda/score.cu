// The end of a classifier of few classes: its last layer's product, softmax, cross-entropy and the
// gradient of what that layer reads, in one kernel, as each is of one row. Of the MLP's 64 rows of
// 128 values and 10 classes each of the four takes as long as a launch.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/sums.cuh"

namespace trainer {
namespace {

constexpr int k_score_threads = 1024; ///< Of a block: a warp for each lane of the last sum.
constexpr std::size_t k_score_rows = k_score_threads / k_warp_lanes; ///< Of a block at a time.
constexpr std::size_t k_rows_of_one_block = 4 * k_score_rows; ///< Which then waits for no other.
constexpr int k_at_once = 4;                                  ///< Classes.

/// A warp a row, of whose classes each lane has one. Of a row x is read and dx written once, the
/// weight read twice, by all but the first warps from a cache.
__global__ void __launch_bounds__(k_score_threads)
    score_kernel(DenseShape s, const float* x, const float* weight, const float* bias,
                 const std::int32_t* labels, const float* scale, float* change, float* dx,
                 double* partial, unsigned* arrived, Score* score) {
  DYNAMIC_SHARED(double, room);
  Score before;
  if (threadIdx.x == 0 && gridDim.x == 1) {
    before = *score; // The host's memory, and far away: while all else goes on.
  }
  const float factor = scale == nullptr ? 0.0F : *scale;
  const unsigned lane = threadIdx.x % k_warp_lanes;
  const unsigned warp = threadIdx.x / k_warp_lanes;
  double sums[2] = {0, 0}; // Of the loss, and of what is right.
  for (std::size_t row = std::size_t{blockIdx.x} * k_score_rows + warp; row < s.rows;
       row += std::size_t{gridDim.x} * k_score_rows) {
    const float* const from = x + row * s.inputs;
    float z = -INFINITY; // Of class `lane`.
    for (std::size_t c = 0; c < s.outputs; c += k_at_once) {
      float products[k_at_once] = {};
      for (std::size_t i = lane; i < s.inputs; i += k_warp_lanes) {
        for (int k = 0; k < k_at_once; ++k) {
          products[k] += c + k < s.outputs ? from[i] * weight[(c + k) * s.inputs + i] : 0.0F;
        }
      }
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
    for (std::size_t first = 0; dx != nullptr && first < s.inputs; first += k_warp_lanes) {
      const std::size_t i = first + lane;
      float value = 0;
      for (std::size_t c = 0; c < s.outputs; ++c) {
        const float of_class = __shfl_sync(k_all_lanes, dz, static_cast<int>(c));
        value += i < s.inputs ? of_class * weight[c * s.inputs + i] : 0.0F;
      }
      if (i < s.inputs) {
        dx[row * s.inputs + i] = from[i] > 0 ? value : 0.0F;
      }
    }
  }
  if (grid_sums(sums, room, partial, arrived) && threadIdx.x == 0) {
    before = gridDim.x == 1 ? before : *score;
    before.loss += sums[0];
    before.correct += static_cast<std::int64_t>(sums[1]);
    before.count += static_cast<std::int64_t>(s.rows);
    *score = before;
  }
}

int put_score(const CudaStreamHandle* stream, const DenseShape& shape, const float* x,
              const float* weight, const float* bias, const std::int32_t* labels,
              const float* scale, float* change, float* dx, Score* score) {
  const unsigned blocks =
      shape.rows <= k_rows_of_one_block ? 1 : blocks_for(shape.rows, k_score_rows);
  return launch(score_kernel, blocks, k_score_threads, 2 * k_score_rows * sizeof(double), stream,
                shape, x, weight, bias, labels, scale, change, dx, stream->partial, stream->arrived,
                score);
}

} // namespace

void set_score_kernels(LayerKernels& layers) { DTRAIN_PUT(layers, score); }

} // namespace trainer
