// What models of text compute between their products. All but gelu, which has an error function or
// an exponential a value, are bound by memory: the bytes that each reads and writes are beside it.
// Letters as text_kernels.h has them.
#include "trainer/device/cuda/dropped.cuh"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/product.cuh"
#include "trainer/philox.h"
#include "trainer/random.h"

namespace trainer {
namespace {

/// 2 bytes written a word; two draws of about 60 integer operations each.
__global__ void keep_bits_kernel(KeepBits which, std::size_t words, std::uint16_t* to) {
  for (std::size_t word = first_item(); word < words; word += all_threads()) {
    unsigned bits = 0;
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint64_t index = which.first + 2 * word + half;
      const PhiloxWords numbers = philox(
          {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
            which.substream, static_cast<std::uint32_t>(RandomStream::dropout)}},
          static_cast<std::uint32_t>(which.seed), static_cast<std::uint32_t>(which.seed >> 32));
      for (unsigned bit = 0; bit < k_keep_bits / 2; ++bit) {
        const std::uint32_t number = numbers.at[bit / 2] >> (bit % 2 * 16) & 0xffffU;
        bits |= (number >= which.threshold ? 1U : 0U) << (half * k_keep_bits / 2 + bit);
      }
    }
    to[word] = static_cast<std::uint16_t>(bits);
  }
}

/// 4 bytes and a bit read, 4 written.
__global__ void drop_kernel(std::size_t n, Dropped dropped, const float* x, float* to) {
  for (std::size_t i = first_item(); i < n; i += all_threads()) {
    to[i] = x[i] * drop_factor(dropped, 0, i);
  }
}

/// 8 bytes and a bit read, 4 written.
__global__ void drop_and_add_kernel(std::size_t n, Dropped dropped, const float* residual,
                                    float* x) {
  for (std::size_t i = first_item(); i < n; i += all_threads()) {
    x[i] = x[i] * drop_factor(dropped, 0, i) + residual[i];
  }
}

/// 4 bytes read of words, 4 written; types and positions stay in the caches.
__global__ void embed_kernel(TextShape s, const std::int32_t* ids, const float* words,
                             const float* type, const float* positions, float* to) {
  for (std::size_t i = first_item(); i < s.tokens() * s.width; i += all_threads()) {
    const std::size_t token = i / s.width;
    const std::size_t column = i % s.width;
    to[i] = words[static_cast<std::size_t>(ids[token]) * s.width + column] +
            (type == nullptr ? 0.0F : type[column]) +
            positions[token % s.length * s.width + column];
  }
}

/// A block a token and k_threads columns: the first token of each word adds up the rows of all that
/// are the same, in their order, and the others' blocks end when they find it. So nothing is sorted
/// and nothing is added in whatever order. 4 bytes read a value of dy, and N ids a block: N² / 2
/// ids in all at most, 32 of them a vote of a warp, and from the caches; of 8,192 tokens about 50
/// µs.
__global__ void __launch_bounds__(k_threads)
    embed_words_backward(TextShape s, const std::int32_t* ids, const float* dy, float* dwords) {
  DYNAMIC_SHARED(unsigned, same); // A bit a token, of k_threads at a time.
  const std::size_t token = blockIdx.x;
  const std::int32_t word = ids[token];
  const std::size_t column = std::size_t{blockIdx.y} * k_threads + threadIdx.x;
  float sum = 0;
  for (std::size_t first = 0; first < s.tokens(); first += k_threads) {
    const std::size_t other = first + threadIdx.x;
    const unsigned bits =
        __ballot_sync(k_all_lanes, other < s.tokens() && ids[other] == word ? 1 : 0);
    if (threadIdx.x % k_warp_lanes == 0) {
      same[threadIdx.x / k_warp_lanes] = bits;
    }
    __syncthreads();
    for (std::size_t warp = 0; warp < k_warps; ++warp) {
      for (unsigned rest = same[warp]; rest != 0; rest &= rest - 1) {
        const std::size_t at =
            first + warp * k_warp_lanes + static_cast<unsigned>(__ffs(static_cast<int>(rest)) - 1);
        if (at < token) {
          return; // All of the block's threads.
        }
        sum += column < s.width ? dy[at * s.width + column] : 0.0F;
      }
    }
    __syncthreads();
  }
  if (column < s.width) {
    dwords[static_cast<std::size_t>(word) * s.width + column] += sum;
  }
}

/// A thread a value of a position's row: 4 bytes read a value of dy.
__global__ void embed_positions_backward(TextShape s, const float* dy, float* dpositions) {
  const std::size_t values = s.length * s.width;
  for (std::size_t i = first_item(); i < values; i += all_threads()) {
    float sum = 0;
    for (std::size_t row = 0; row < s.rows; ++row) {
      sum += dy[row * values + i];
    }
    dpositions[i] += sum;
  }
}

/// A warp a row: 4 bytes read, which stay in the caches for two more passes, and 4 written.
__global__ void norm_kernel(NormShape s, const float* x, const float* gain, const float* shift,
                            float* y, float* moments) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       row < s.rows; row += std::size_t{gridDim.x} * k_warps) {
    const float* const from = x + row * s.width;
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

/// A warp a row, as the CPU's: 8 bytes read, 4 written.
__global__ void norm_backward_kernel(NormShape s, const float* x, const float* moments,
                                     const float* gain, float* dy) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       row < s.rows; row += std::size_t{gridDim.x} * k_warps) {
    const float* const from = x + row * s.width;
    float* const change = dy + row * s.width;
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

/// What a norm's gain has as its gradient of a value: for sums over rows, 8 bytes read each.
struct GainChange {
  std::size_t width;
  const float* x;
  const float* moments;
  const float* dy;
  __device__ float operator()(std::size_t row, std::size_t column) const {
    const std::size_t i = row * width + column;
    return dy[i] * ((x[i] - moments[2 * row]) * moments[2 * row + 1]);
  }
};

/// 8 bytes read, 4 written.
__global__ void gelu_backward_kernel(std::size_t n, const float* x, float* dy) {
  for (std::size_t i = first_item(); i < n; i += all_threads()) {
    dy[i] *= gelu_slope(x[i]);
  }
}

/// 4 bytes read and 4 written a value of what is masked.
__global__ void gather_masked_kernel(MaskedShape s, const std::int32_t* masked, const float* x,
                                     float* to) {
  for (std::size_t i = first_item(); i < s.slots() * s.width; i += all_threads()) {
    const std::size_t slot = i / s.width;
    const std::size_t first = slot / s.most_masked * s.length;
    to[i] = masked[slot] < 0
                ? 0.0F
                : x[(first + static_cast<std::size_t>(masked[slot])) * s.width + i % s.width];
  }
}

/// The same. No two slots are of one token.
__global__ void scatter_masked_kernel(MaskedShape s, const std::int32_t* masked, const float* from,
                                      float* to) {
  for (std::size_t i = first_item(); i < s.slots() * s.width; i += all_threads()) {
    const std::size_t slot = i / s.width;
    const std::size_t first = slot / s.most_masked * s.length;
    if (masked[slot] >= 0) {
      to[(first + static_cast<std::size_t>(masked[slot])) * s.width + i % s.width] = from[i];
    }
  }
}

/// So many blocks at most leave three sums each.
constexpr std::size_t k_score_blocks = k_cuda_partials / 4;

/// Of all of a block's threads; `room` as block_sum() has it.
__device__ inline float block_largest(float value, double* room) {
  value = warp_largest(value);
  if (threadIdx.x % k_warp_lanes == 0) {
    room[threadIdx.x / k_warp_lanes] = double{value};
  }
  __syncthreads();
  double largest = room[0];
  for (int warp = 1; warp < k_warps; ++warp) {
    largest = room[warp] > largest ? room[warp] : largest;
  }
  __syncthreads();
  return static_cast<float>(largest);
}

/// A block a slot: 4 bytes read of each logit, three times, of which two from the second cache
/// where it has a block's V logits, and 4 written; two exponentials each.
__global__ void __launch_bounds__(k_threads)
    masked_cross_entropy_kernel(MaskedShape s, const std::int32_t* masked,
                                const std::int32_t* targets, const float* scale, float* logits,
                                double* partial) {
  DYNAMIC_SHARED(double, room);
  double loss = 0;
  double correct = 0;
  double count = 0;
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    float* const z = logits + slot * s.width;
    if (masked[slot] < 0) {
      for (std::size_t word = threadIdx.x; word < s.width; word += k_threads) {
        z[word] = 0;
      }
      continue; // All of the block's threads.
    }
    const std::int32_t* const of_row = masked + slot / s.most_masked * s.most_masked;
    unsigned of_row_masked = 0;
    for (std::size_t i = 0; i < s.most_masked; ++i) {
      of_row_masked += of_row[i] >= 0 ? 1 : 0;
    }
    const float weight = (scale == nullptr ? 0.0F : *scale) / static_cast<float>(of_row_masked);
    const auto target = static_cast<std::size_t>(targets[slot]);
    const float logit = z[target];
    float largest = -INFINITY;
    for (std::size_t word = threadIdx.x; word < s.width; word += k_threads) {
      largest = z[word] > largest ? z[word] : largest;
    }
    largest = block_largest(largest, room); // Behind it everybody has read the target's logit.
    float own = 0;
    for (std::size_t word = threadIdx.x; word < s.width; word += k_threads) {
      own += expf(z[word] - largest);
    }
    const double sum = block_sum(double{own}, room);
    const auto share = static_cast<float>(1 / sum);
    for (std::size_t word = threadIdx.x; word < s.width; word += k_threads) {
      z[word] = (expf(z[word] - largest) * share - (word == target ? 1.0F : 0.0F)) * weight;
    }
    loss += log(sum) - (double{logit} - double{largest});
    correct += logit >= largest ? 1 : 0;
    ++count;
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = loss;
    partial[k_score_blocks + blockIdx.x] = correct;
    partial[2 * k_score_blocks + blockIdx.x] = count;
  }
}

__global__ void add_masked_score(unsigned blocks, const double* partial, Score* score) {
  const double loss = sum_of_partials(partial, blocks);
  const double correct = sum_of_partials(partial + k_score_blocks, blocks);
  const double count = sum_of_partials(partial + 2 * k_score_blocks, blocks);
  if (threadIdx.x == 0) {
    score->loss += loss;
    score->correct += static_cast<std::int64_t>(correct);
    score->count += static_cast<std::int64_t>(count);
  }
}

int put_keep_bits(const CudaStreamHandle* stream, const KeepBits& which, std::size_t words,
                  std::uint16_t* to) {
  return launch(keep_bits_kernel, blocks_for(words), k_threads, 0, stream, which, words, to);
}

int put_drop(const CudaStreamHandle* stream, std::size_t n, const Dropped& dropped, const float* x,
             float* to) {
  return launch(drop_kernel, blocks_for(n), k_threads, 0, stream, n, dropped, x, to);
}

int put_drop_and_add(const CudaStreamHandle* stream, std::size_t n, const Dropped& dropped,
                     const float* residual, float* x) {
  return launch(drop_and_add_kernel, blocks_for(n), k_threads, 0, stream, n, dropped, residual, x);
}

int put_embed(const CudaStreamHandle* stream, const TextShape& s, const std::int32_t* ids,
              const float* words, const float* type, const float* positions, float* to) {
  return launch(embed_kernel, blocks_for(s.tokens() * s.width), k_threads, 0, stream, s, ids, words,
                type, positions, to);
}

int put_embed_backward(const CudaStreamHandle* stream, const TextShape& s, const std::int32_t* ids,
                       const float* dy, float* dwords, float* dtype, float* dpositions) {
  const dim3 grid(static_cast<unsigned>(s.tokens()), tiles_of(s.width, k_threads), 1);
  int error = launch(embed_words_backward, grid, k_threads, k_warps * sizeof(unsigned), stream, s,
                     ids, dy, dwords);
  if (error == 0) {
    error = launch(embed_positions_backward, blocks_for(s.length * s.width), k_threads, 0, stream,
                   s, dy, dpositions);
  }
  return error != 0 || dtype == nullptr ? error
                                        : put_column_sums(stream, s.tokens(), s.width,
                                                          Strided<true>{dy, s.width}, true, dtype);
}

int put_norm(const CudaStreamHandle* stream, const NormShape& s, const float* x, const float* gain,
             const float* shift, float* y, float* moments) {
  return launch(norm_kernel, blocks_for(s.rows, k_warps), k_threads, 0, stream, s, x, gain, shift,
                y, moments);
}

int put_norm_backward(const CudaStreamHandle* stream, const NormShape& s, const float* x,
                      const float* moments, const float* gain, bool accumulate, float* dy,
                      float* dgain, float* dshift) {
  int error = put_column_sums(stream, s.rows, s.width, GainChange{s.width, x, moments, dy},
                              accumulate, dgain);
  if (error == 0) {
    error =
        put_column_sums(stream, s.rows, s.width, Strided<true>{dy, s.width}, accumulate, dshift);
  }
  return error != 0 ? error
                    : launch(norm_backward_kernel, blocks_for(s.rows, k_warps), k_threads, 0,
                             stream, s, x, moments, gain, dy);
}

int put_gelu_backward(const CudaStreamHandle* stream, std::size_t n, const float* x, float* dy) {
  return launch(gelu_backward_kernel, blocks_for(n), k_threads, 0, stream, n, x, dy);
}

int put_gather_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                      const std::int32_t* masked, const float* x, float* to) {
  return launch(gather_masked_kernel, blocks_for(s.slots() * s.width), k_threads, 0, stream, s,
                masked, x, to);
}

int put_scatter_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                       const std::int32_t* masked, const float* from, float* to) {
  return launch(scatter_masked_kernel, blocks_for(s.slots() * s.width), k_threads, 0, stream, s,
                masked, from, to);
}

int put_masked_cross_entropy(const CudaStreamHandle* stream, const MaskedShape& s,
                             const std::int32_t* masked, const std::int32_t* targets,
                             const float* scale, float* logits, Score* score) {
  const auto blocks =
      static_cast<unsigned>(s.slots() < k_score_blocks ? s.slots() : k_score_blocks);
  const int error = launch(masked_cross_entropy_kernel, blocks, k_threads, k_warps * sizeof(double),
                           stream, s, masked, targets, scale, logits, stream->partial);
  return error != 0
             ? error
             : launch(add_masked_score, 1, k_warp_lanes, 0, stream, blocks, stream->partial, score);
}

} // namespace

void set_text_kernels(TextKernels& text) {
  DTRAIN_PUT(text, keep_bits);
  DTRAIN_PUT(text, drop);
  DTRAIN_PUT(text, drop_and_add);
  DTRAIN_PUT(text, embed);
  DTRAIN_PUT(text, embed_backward);
  DTRAIN_PUT(text, norm);
  DTRAIN_PUT(text, norm_backward);
  DTRAIN_PUT(text, gelu_backward);
  DTRAIN_PUT(text, gather_masked);
  DTRAIN_PUT(text, scatter_masked);
  DTRAIN_PUT(text, masked_cross_entropy);
}

} // namespace trainer
