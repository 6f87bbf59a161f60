// Embeddings of tokens, and their gradients. Letters as in text_kernels.h. Beside each kernel are
// the bytes that it reads and writes for float32; bf16 activations take 2 bytes instead of 4.
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/products/product.cuh"

namespace trainer {
namespace {

/// One block per token. Per value 4 bytes read of the word's row and 4 written; types and positions
/// stay in the caches.
template <typename Value>
__global__ void embed_kernel(TextShape s, const std::int32_t* ids, const float* words,
                             const float* type, const float* positions, Value* to) {
  for (std::size_t token = blockIdx.x; token < s.tokens(); token += gridDim.x) {
    const float* const word = words + static_cast<std::size_t>(ids[token]) * s.width;
    const float* const position = positions + token % s.length * s.width;
    Value* const row = to + token * s.width;
    if (type == nullptr) {
      each(
          of_block(), s.width, [](float a, float b, Value& sum) { sum = a + b; }, word, position,
          row);
    } else {
      each(
          of_block(), s.width, [](float a, float b, float c, Value& sum) { sum = a + b + c; }, word,
          type, position, row);
    }
  }
}

/// One warp per token: a stable sort of token numbers by word, by counting. Reads N² ids; for
/// N = 8,192 that is 0.3 GB from the L1 cache, about 10 µs.
__global__ void sort_tokens(std::size_t tokens, const std::int32_t* ids, std::int32_t* sorted) {
  const Share lanes = {threadIdx.x % k_warp_lanes, k_warp_lanes};
  for (std::size_t i = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes; i < tokens;
       i += std::size_t{gridDim.x} * k_warps) {
    const auto token = static_cast<std::int32_t>(i);
    const std::int32_t word = ids[i];
    int before = 0;
    const auto count = [&]<int N>(std::size_t first, const Pack<std::int32_t, N>& some) {
      const auto other = static_cast<std::int32_t>(first);
      for (int k = 0; k < N; ++k) {
        before += some.at[k] < word + (other + k < token ? 1 : 0) ? 1 : 0;
      }
    };
    each_pack(lanes, tokens, true, count, ids);
    before = warp_sum(before);
    if (lanes.first == 0) {
      sorted[before] = token;
    }
  }
}

/// Sorted tokens in chunks; one block sums each chunk. The tokens of one word are a run, and the
/// parts of a run in several chunks are added in order, so that the result is deterministic.
template <typename Value>
struct Runs {
  std::size_t tokens;
  std::size_t width;
  std::size_t a_chunk;
  const std::int32_t* ids;
  const std::int32_t* sorted;
  const Value* dy;
  float* dwords;
  float* heads; ///< (chunks, width): the part of a run that began in an earlier chunk,
  float* tails; ///< and of one that begins here and continues in the next.

  /// The word of sorted token i; -1 after the last.
  __device__ std::int32_t word(std::size_t i) const { return i < tokens ? ids[sorted[i]] : -1; }
  /// Whether token i belongs to the same run as the token before.
  __device__ bool goes_on(std::size_t i) const { return i > 0 && word(i - 1) == word(i); }
};

template <int N>
__device__ void add(const Pack<float, N>& values, Pack<float, N>& to) {
  for (int k = 0; k < N; ++k) {
    to.at[k] += values.at[k];
  }
}

/// One block per chunk: 4 bytes read per value of dy, and 8 read and written per value of a word.
template <int N, typename Value>
__global__ void add_runs(Runs<Value> r) {
  const std::size_t column = (std::size_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= r.width) {
    return;
  }
  const std::size_t first = blockIdx.x * r.a_chunk;
  const std::size_t last = first + r.a_chunk < r.tokens ? first + r.a_chunk : r.tokens;
  bool is_head = r.goes_on(first);
  Pack<float, N> sum = {};
  for (std::size_t at = first; at < last; at += k_rows_ahead) {
    Pack<float, N> rows[k_rows_ahead] = {};
    std::int32_t words[k_rows_ahead + 1];
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      if (at + i < last) {
        rows[i] =
            load_floats<N>(r.dy + static_cast<std::size_t>(r.sorted[at + i]) * r.width + column);
      }
    }
    for (std::size_t i = 0; i <= k_rows_ahead; ++i) {
      words[i] = r.word(at + i);
    }
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      add(rows[i], sum);
      const bool ends = words[i] != words[i + 1];
      if (at + i < last && (ends || at + i + 1 == last)) {
        float* const to = (is_head ? r.heads + blockIdx.x * r.width
                           : ends  ? r.dwords + static_cast<std::size_t>(words[i]) * r.width
                                   : r.tails + blockIdx.x * r.width) +
                          column;
        if (ends && !is_head) {
          add(load<N>(to), sum);
        }
        store(sum, to);
        sum = {};
        is_head = false;
      }
    }
  }
}

/// One block per chunk in which a continued run begins: 4 bytes read per value of each part.
template <int N, typename Value>
__global__ void join_runs(Runs<Value> r) {
  const std::size_t column = (std::size_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  const std::size_t last = (blockIdx.x + 1) * r.a_chunk;
  const std::int32_t word = r.word(last - 1);
  if (column >= r.width || last >= r.tokens || !r.goes_on(last) ||
      (blockIdx.x > 0 && r.word(last - r.a_chunk - 1) == word)) {
    return;
  }
  auto sum = load<N>(r.tails + blockIdx.x * r.width + column);
  bool goes_on = true;
  for (std::size_t chunk = blockIdx.x + 1; goes_on; chunk += k_rows_ahead) {
    Pack<float, N> parts[k_rows_ahead] = {};
    bool are_its[k_rows_ahead];
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      are_its[i] = r.word((chunk + i) * r.a_chunk) == word;
      if ((chunk + i) * r.a_chunk < r.tokens) {
        parts[i] = load<N>(r.heads + (chunk + i) * r.width + column);
      }
    }
    for (std::size_t i = 0; i < k_rows_ahead; ++i) {
      goes_on = goes_on && are_its[i];
      if (goes_on) {
        add(parts[i], sum);
      }
    }
  }
  float* const to = r.dwords + static_cast<std::size_t>(word) * r.width + column;
  add(load<N>(to), sum);
  store(sum, to);
}

/// One thread per four values of a position's row: 4 bytes read per value of dy.
template <typename Value>
__global__ void embed_positions_backward(TextShape s, const Value* dy, float* dpositions) {
  const std::size_t values = s.length * s.width;
  const auto work = [&]<int N>(std::size_t i, Pack<float, N>& to) {
    Pack<float, N> sum = {};
    for (std::size_t row = 0; row < s.rows; ++row) {
      add(load_floats<N>(dy + row * values + i), sum);
    }
    add(sum, to);
  };
  each_pack(of_grid(), values, values % k_four == 0 && are_fours(dy), work, dpositions);
}

int put_embed(const CudaStreamHandle* stream, const TextShape& s, const std::int32_t* ids,
              const float* words, const float* type, const float* positions,
              const TypedPointer& to) {
  return by_type(to.type, [&](auto value) {
    using Value = decltype(value);
    return launch(embed_kernel<Value>, blocks_of_rows(s.tokens()), threads_of_row(s.width), 0,
                  stream, s, ids, words, type, positions, to.as<Value>());
  });
}

/// The most tokens of one call, which are sorted in the stream's scratch memory.
constexpr std::size_t k_sorted = std::size_t{1} << 16;

template <typename Value>
int put_words_backward(const CudaStreamHandle* stream, std::size_t tokens, std::size_t width,
                       const std::int32_t* ids, const Value* dy, float* dwords) {
  constexpr std::size_t k_least_chunk = 32;
  auto* const sorted = reinterpret_cast<std::int32_t*>(stream->partial);
  float* const heads = reinterpret_cast<float*>(stream->partial) + k_sorted;
  const std::size_t most = (2 * k_cuda_partials - k_sorted) / (2 * width);
  const unsigned chunks = blocks_for(tokens, k_least_chunk, most < 1 ? 1 : most);
  const std::size_t a_chunk = (tokens + chunks - 1) / chunks;
  const Runs<Value> runs = {
      tokens, width, a_chunk, ids, sorted, dy, dwords, heads, heads + chunks * width};
  const bool by_fours = width % k_four == 0 && are_fours(dy, dwords);
  const unsigned threads = by_fours ? threads_of_row(width) : k_threads;
  const dim3 grid(tiles_of(tokens, a_chunk), tiles_of(width, threads * (by_fours ? k_four : 1)), 1);
  int error =
      launch(sort_tokens, blocks_for(tokens, k_warps), k_threads, 0, stream, tokens, ids, sorted);
  if (error == 0) {
    error = launch(by_fours ? add_runs<k_four, Value> : add_runs<1, Value>, grid, threads, 0,
                   stream, runs);
  }
  return error != 0 ? error
                    : launch(by_fours ? join_runs<k_four, Value> : join_runs<1, Value>, grid,
                             threads, 0, stream, runs);
}

template <typename Value>
int put_embed_backward_of(const CudaStreamHandle* stream, const TextShape& s,
                          const std::int32_t* ids, const Value* dy, float* dwords, float* dtype,
                          float* dpositions) {
  int error = 0;
  for (std::size_t first = 0; error == 0 && first < s.tokens(); first += k_sorted) {
    const std::size_t tokens = s.tokens() - first < k_sorted ? s.tokens() - first : k_sorted;
    error = put_words_backward(stream, tokens, s.width, ids + first, dy + first * s.width, dwords);
  }
  if (error == 0) {
    error = launch(embed_positions_backward<Value>, blocks_of_fours(s.length * s.width), k_threads,
                   0, stream, s, dy, dpositions);
  }
  return error != 0 || dtype == nullptr
             ? error
             : put_column_sums(stream, s.tokens(), s.width, Strided<true, Value>{dy, s.width}, true,
                               dtype);
}

int put_embed_backward(const CudaStreamHandle* stream, const TextShape& s, const std::int32_t* ids,
                       const ConstTypedPointer& dy, float* dwords, float* dtype,
                       float* dpositions) {
  return by_type(dy.type, [&](auto value) {
    return put_embed_backward_of(stream, s, ids, dy.as<decltype(value)>(), dwords, dtype,
                                 dpositions);
  });
}

} // namespace

void set_embedding_kernels(TextKernels& text) {
  DTRAIN_PUT(text, embed);
  DTRAIN_PUT(text, embed_backward);
}

} // namespace trainer
