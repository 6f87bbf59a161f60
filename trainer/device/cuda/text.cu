// Kernels of text models beside products, embedding.cu and norm.cu. All but gelu, which computes an
// error function or an exponential per value, are bound by memory: beside each are the values that
// it reads and writes, of 4 or 2 bytes each. Letters as in text_kernels.h.
#include "trainer/device/cuda/dropped.cuh"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/products/mma.cuh"
#include "trainer/device/cuda/products/product.cuh"
#include "trainer/philox.h"
#include "trainer/random.h"

namespace trainer {
namespace {

/// 2 bytes written per word; two random draws of about 60 integer operations each.
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

/// Dropout factors of N values from value `i` on, all in one word of keep bits.
template <int N>
__device__ Pack<float, N> drop_factors(const DropShape& s, const Dropped& dropped, std::size_t i) {
  const std::size_t row = s.width % k_keep_bits == 0 ? 0 : i / s.width;
  return drop_factors<N>(dropped, row * keep_words(s.width), i - row * s.width);
}

/// One value and one bit read, one value written.
template <typename Value>
__global__ void drop_kernel(DropShape s, Dropped dropped, const Value* x, Value* to) {
  const auto drop = [&]<int N>(std::size_t i, Pack<Value, N>& from, Pack<Value, N>& left) {
    const Pack<float, N> by = drop_factors<N>(s, dropped, i);
    for (int k = 0; k < N; ++k) {
      left.at[k] = from.at[k] * by.at[k];
    }
  };
  each_pack(of_grid(), s.values(), s.width % k_four == 0, drop, x, to);
}

/// Two values and one bit read, one value written.
template <typename Value>
__global__ void drop_and_add_kernel(DropShape s, Dropped dropped, const Value* residual, Value* x) {
  const auto drop = [&]<int N>(std::size_t i, Pack<Value, N>& added, Pack<Value, N>& to) {
    const Pack<float, N> by = drop_factors<N>(s, dropped, i);
    for (int k = 0; k < N; ++k) {
      to.at[k] = to.at[k] * by.at[k] + added.at[k];
    }
  };
  each_pack(of_grid(), s.values(), s.width % k_four == 0, drop, residual, x);
}

/// Two values read, one written.
template <typename Value>
__global__ void gelu_backward_kernel(std::size_t n, const Value* x, Value* dy) {
  each(
      of_grid(), n, [](float u, Value& change) { change = change * Gelu<Value>::slope(u); }, x, dy);
}

/// One block per slot: reads and writes the row of a masked token, or writes zeros.
template <typename Value>
__global__ void gather_masked_kernel(MaskedShape s, const std::int32_t* masked, const Value* x,
                                     Value* to) {
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    Value* const row = to + slot * s.width;
    if (masked[slot] < 0) {
      each(
          of_block(), s.width, [](Value& value) { value = 0; }, row);
    } else {
      const std::size_t token =
          slot / s.most_masked * s.length + static_cast<std::size_t>(masked[slot]);
      each(
          of_block(), s.width, [](Value from, Value& value) { value = from; }, x + token * s.width,
          row);
    }
  }
}

/// The reverse. No two slots share a token.
template <typename Value>
__global__ void scatter_masked_kernel(MaskedShape s, const std::int32_t* masked, const Value* from,
                                      Value* to) {
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    if (masked[slot] >= 0) {
      const std::size_t token =
          slot / s.most_masked * s.length + static_cast<std::size_t>(masked[slot]);
      each(
          of_block(), s.width, [](Value value, Value& row) { row = value; }, from + slot * s.width,
          to + token * s.width);
    }
  }
}

/// Reduces over a block. `room`: one value per warp, not to be written before the next barrier.
__device__ inline float block_largest(float value, float* room) {
  value = warp_largest(value);
  if (threadIdx.x % k_warp_lanes == 0) {
    room[threadIdx.x / k_warp_lanes] = value;
  }
  __syncthreads();
  for (unsigned warp = 0; warp < blockDim.x / k_warp_lanes; ++warp) {
    value = room[warp] > value ? room[warp] : value;
  }
  return value;
}

// For many logits a block is as large as possible. If it keeps its row in shared memory, two blocks
// of half that size share a multiprocessor, so that one reads while the other computes or writes.
// Otherwise it has a multiprocessor to itself, so that the rows in flight (132 times 50,304 logits,
// 27 MB) are still in the L2 cache when they are read again.
constexpr std::size_t k_many_logits = 8192;
constexpr int k_most_threads = 1024;
constexpr std::size_t k_rows_in_cache = 132;
constexpr std::size_t k_score_room = (k_most_threads / k_warp_lanes) * 3; ///< In doubles.
constexpr std::size_t k_room_besides =
    k_score_room * sizeof(double) + k_most_threads / k_warp_lanes * sizeof(float);
static_assert(k_room_besides % 16 == 0); // Logits are kept after it.

constexpr std::size_t k_reserved = 1024; ///< Bytes of shared memory that CUDA reserves per block.

/// A block's pass over a row: work(index, a pack of each array…), 16 bytes at a time if aligned.
template <typename Work, typename Value, typename... More>
__device__ void walk_row(std::size_t width, const Work& work, Value* row, More*... more) {
  constexpr int k_sixteen = 16 / sizeof(Value);
  std::size_t done = 0;
  if (are_packs<k_sixteen>(row, more...)) {
    walk<k_sixteen, 4>(of_block(), 0, width / k_sixteen, work, row, more...);
    done = width / k_sixteen * k_sixteen;
  }
  walk<1, 1>(of_block(), done, width - done, work, row, more...);
}

__device__ inline float power_of_e(float x) { return power_of_two(x * k_log2_e); }

/// One block per slot: reads and writes each logit, reads it twice unless the row is kept in shared
/// memory (`keeps`), and takes two exponentials.
template <typename Value>
__global__ void __launch_bounds__(k_most_threads)
    masked_cross_entropy_kernel(MaskedShape s, const std::int32_t* masked,
                                const std::int32_t* targets, const float* scale, bool keeps,
                                Value* logits, double* partial, unsigned* arrived, Score* score) {
  DYNAMIC_SHARED(double, room);
  auto* const room_of_largest = reinterpret_cast<float*>(room + k_score_room);
  auto* const kept = reinterpret_cast<Value*>(room_of_largest + k_most_threads / k_warp_lanes);
  double scored[3] = {0, 0, 0}; // Loss, correct and count, in the first thread.
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    Value* const z = logits + slot * s.row_size();
    if (masked[slot] < 0) {
      each(
          of_block(), s.width, [](Value& logit) { logit = 0; }, z);
      continue; // The whole block continues.
    }
    const std::int32_t* const of_row = masked + slot / s.most_masked * s.most_masked;
    double sums[2] = {0, 0}; // Masked tokens of the row, and sum of the exponentials.
    for (std::size_t i = threadIdx.x; i < s.most_masked; i += blockDim.x) {
      sums[0] += of_row[i] >= 0 ? 1 : 0;
    }
    const auto target = static_cast<std::size_t>(targets[slot]);
    const float logit = z[target];
    float own_largest = -3.4028235e38F; // Finite: an infinity minus itself would be a NaN.
    float own = 0;
    const auto add = [&]<int N>(std::size_t at, const Pack<Value, N>& some) {
      if (keeps) {
        store(some, kept + at);
      }
      float most = some.at[0];
      for (const float value : some.at) {
        most = value > most ? value : most;
      }
      if (most > own_largest) {
        own *= power_of_e(own_largest - most);
        own_largest = most;
      }
      for (const float value : some.at) {
        own += power_of_e(value - own_largest);
      }
    };
    walk_row(s.width, add, static_cast<const Value*>(z));
    const float largest = block_largest(own_largest, room_of_largest);
    sums[1] = double{own * power_of_e(own_largest - largest)};
    block_sums(sums, room); // After this all have read the target's logit.
    if (scale != nullptr) {
      const float weight = *scale / static_cast<float>(sums[0]);
      const auto share = static_cast<float>(1 / sums[1]);
      const float by = share * weight;
      const auto change = [&]<int N>(std::size_t at, const Pack<Value, N>& some,
                                     Pack<Value, N>& to) {
        for (int k = 0; k < N; ++k) {
          to.at[k] = power_of_e(some.at[k] - largest) * by;
        }
        if (target - at < N) {
          for (int k = 0; k < N; ++k) {
            to.at[k] = at + k == target ? (power_of_e(logit - largest) * share - 1) * weight
                                        : static_cast<float>(to.at[k]);
          }
        }
      };
      walk_row(s.width, change, static_cast<const Value*>(keeps ? kept : z), z);
    }
    if (threadIdx.x == 0) {
      scored[0] += log(sums[1]) - (double{logit} - double{largest});
      scored[1] += logit >= largest ? 1 : 0;
      ++scored[2];
    }
  }
  __syncthreads(); // All threads have read the room.
  if (grid_sums(scored, room, partial, arrived) && threadIdx.x == 0) {
    score->loss += scored[0];
    score->correct += static_cast<std::int64_t>(scored[1]);
    score->count += static_cast<std::int64_t>(scored[2]);
  }
}

int put_keep_bits(const CudaStreamHandle* stream, const KeepBits& which, std::size_t words,
                  std::uint16_t* to) {
  stream->narrowed->forget({to, DType::bf16}, words);
  return launch(keep_bits_kernel, blocks_for(words), k_threads, 0, stream, which, words, to);
}

int put_drop(const CudaStreamHandle* stream, const DropShape& s, const Dropped& dropped,
             const ConstTypedPointer& x, const TypedPointer& to) {
  stream->narrowed->forget(to, s.values());
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(drop_kernel<Value>, blocks_of_fours(s.values()), k_threads, 0, stream, s, dropped,
                  x.as<Value>(), to.as<Value>());
  });
}

int put_drop_and_add(const CudaStreamHandle* stream, const DropShape& s, const Dropped& dropped,
                     const ConstTypedPointer& residual, const TypedPointer& x) {
  stream->narrowed->forget(x, s.values());
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(drop_and_add_kernel<Value>, blocks_of_fours(s.values()), k_threads, 0, stream, s,
                  dropped, residual.as<Value>(), x.as<Value>());
  });
}

int put_gelu_backward(const CudaStreamHandle* stream, std::size_t n, const ConstTypedPointer& x,
                      const TypedPointer& dy) {
  stream->narrowed->forget(dy, n);
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(gelu_backward_kernel<Value>, blocks_of_fours(n), k_threads, 0, stream, n,
                  x.as<Value>(), dy.as<Value>());
  });
}

int put_gather_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                      const std::int32_t* masked, const ConstTypedPointer& x,
                      const TypedPointer& to) {
  stream->narrowed->forget(to, s.slots() * s.width);
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(gather_masked_kernel<Value>, blocks_of_rows(s.slots()), threads_of_row(s.width),
                  0, stream, s, masked, x.as<Value>(), to.as<Value>());
  });
}

int put_scatter_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                       const std::int32_t* masked, const ConstTypedPointer& from,
                       const TypedPointer& to) {
  stream->narrowed->forget(to, s.rows * s.length * s.width);
  return by_type(to.type, [&](auto value) {
    using Value = decltype(value);
    return launch(scatter_masked_kernel<Value>, blocks_of_rows(s.slots()), threads_of_row(s.width),
                  0, stream, s, masked, from.as<Value>(), to.as<Value>());
  });
}

int put_masked_cross_entropy(const CudaStreamHandle* stream, const MaskedShape& s,
                             const std::int32_t* masked, const std::int32_t* targets,
                             const float* scale, const TypedPointer& logits, Score* score) {
  stream->narrowed->forget(logits, s.slots() * s.row_size()); // The score is no operand.
  return by_type(logits.type, [&](auto value) {
    using Value = decltype(value);
    const bool are_many = s.width >= k_many_logits;
    const std::size_t kept = k_room_besides + s.width * sizeof(Value);
    const bool keeps = are_many && kept <= stream->most_shared;
    const bool share = keeps && 2 * kept + k_reserved <= stream->most_shared;
    return launch(
        masked_cross_entropy_kernel<Value>,
        blocks_for(s.slots(), 1, !are_many ? k_most_blocks : k_rows_in_cache * (share ? 2 : 1)),
        !are_many ? k_threads
        : share   ? k_most_threads / 2
                  : k_most_threads,
        keeps ? kept : k_room_besides, stream, s, masked, targets, scale, keeps, logits.as<Value>(),
        stream->partial, stream->arrived, score);
  });
}

} // namespace

void set_text_kernels(TextKernels& text) {
  DTRAIN_PUT_AND_TELL(text, keep_bits);
  DTRAIN_PUT_AND_TELL(text, drop);
  DTRAIN_PUT_AND_TELL(text, drop_and_add);
  DTRAIN_PUT_AND_TELL(text, gelu_backward);
  DTRAIN_PUT_AND_TELL(text, gather_masked);
  DTRAIN_PUT_AND_TELL(text, scatter_masked);
  DTRAIN_PUT_AND_TELL(text, masked_cross_entropy);
}

} // namespace trainer
