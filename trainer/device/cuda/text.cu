// What models of text compute between their products, but for embedding.cu and norm.cu. All but
// gelu, which has an error function or an exponential a value, are bound by memory: the values that
// each reads and writes are beside it, of 4 or 2 bytes each. Letters as text_kernels.h has them.
#include "trainer/device/cuda/dropped.cuh"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/mma.cuh"
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

/// What N values from value `i` on are multiplied by, whose words have 16 bits each.
template <int N>
__device__ Pack<float, N> drop_factors(const Dropped& dropped, std::size_t i) {
  const bool drops = dropped.keep != nullptr;
  const unsigned bits = drops ? dropped.keep[i / k_keep_bits] >> i % k_keep_bits : ~0U;
  const float scale = drops ? dropped.scale : 1.0F;
  Pack<float, N> factors;
  for (int k = 0; k < N; ++k) {
    factors.at[k] = (bits >> k & 1U) != 0 ? scale : 0.0F;
  }
  return factors;
}

/// A value and a bit read, a value written.
template <typename Value>
__global__ void drop_kernel(std::size_t n, Dropped dropped, const Value* x, Value* to) {
  const auto drop = [&]<int N>(std::size_t i, Pack<Value, N>& from, Pack<Value, N>& left) {
    const Pack<float, N> by = drop_factors<N>(dropped, i);
    for (int k = 0; k < N; ++k) {
      left.at[k] = from.at[k] * by.at[k];
    }
  };
  each_pack(of_grid(), n, true, drop, x, to);
}

/// Two values and a bit read, a value written.
template <typename Value>
__global__ void drop_and_add_kernel(std::size_t n, Dropped dropped, const Value* residual,
                                    Value* x) {
  const auto drop = [&]<int N>(std::size_t i, Pack<Value, N>& added, Pack<Value, N>& to) {
    const Pack<float, N> by = drop_factors<N>(dropped, i);
    for (int k = 0; k < N; ++k) {
      to.at[k] = to.at[k] * by.at[k] + added.at[k];
    }
  };
  each_pack(of_grid(), n, true, drop, residual, x);
}

/// Two values read, one written.
template <typename Value>
__global__ void gelu_backward_kernel(std::size_t n, const Value* x, Value* dy) {
  each(
      of_grid(), n, [](float u, Value& change) { change = change * gelu_slope(u); }, x, dy);
}

/// A block a slot: what is masked is read, and written.
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

/// The same. No two slots are of one token.
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

/// Of all of a block's threads. `room`: a value a warp, not written again before the next barrier.
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

// Of many logits a block has as many threads as there are. Where it keeps them in shared memory,
// two blocks of half as many share a multiprocessor, so that one reads while the other computes or
// writes; else one has it for itself: so the rows under way, of 132 times 50,304 logits 27 MB at
// most, are still in the second cache when they are read again.
constexpr std::size_t k_many_logits = 8192;
constexpr int k_most_threads = 1024;
constexpr std::size_t k_rows_in_cache = 132;
constexpr std::size_t k_score_room = (k_most_threads / k_warp_lanes) * 3; ///< Doubles.
constexpr std::size_t k_room_besides =
    k_score_room * sizeof(double) + k_most_threads / k_warp_lanes * sizeof(float);
static_assert(k_room_besides % 16 == 0); // Behind it logits are kept.

constexpr std::size_t k_reserved = 1024; ///< Bytes of each block's, of all but the first here.

/// A block's pass over a row: work(index, a pack of each array…), by 16 bytes where they lie so.
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

__device__ inline float power_of_e(float x) {
  constexpr float k_log2_e = 1.44269504F;
  return power_of_two(x * k_log2_e);
}

/// A block a slot: each logit is read and written, and where it is not kept meanwhile (`keeps`)
/// read twice; two exponentials each.
template <typename Value>
__global__ void __launch_bounds__(k_most_threads)
    masked_cross_entropy_kernel(MaskedShape s, const std::int32_t* masked,
                                const std::int32_t* targets, const float* scale, bool keeps,
                                Value* logits, double* partial, unsigned* arrived, Score* score) {
  DYNAMIC_SHARED(double, room);
  auto* const room_of_largest = reinterpret_cast<float*>(room + k_score_room);
  auto* const kept = reinterpret_cast<Value*>(room_of_largest + k_most_threads / k_warp_lanes);
  double scored[3] = {0, 0, 0}; // Loss, correct and count, by the first thread.
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    Value* const z = logits + slot * s.row_size();
    if (masked[slot] < 0) {
      each(
          of_block(), s.width, [](Value& logit) { logit = 0; }, z);
      continue; // All of the block's threads.
    }
    const std::int32_t* const of_row = masked + slot / s.most_masked * s.most_masked;
    double sums[2] = {0, 0}; // How many are masked of the row, and of the exponentials.
    for (std::size_t i = threadIdx.x; i < s.most_masked; i += blockDim.x) {
      sums[0] += of_row[i] >= 0 ? 1 : 0;
    }
    const auto target = static_cast<std::size_t>(targets[slot]);
    const float logit = z[target];
    float own_largest = -3.4028235e38F; // Finite, so that it can be subtracted from itself.
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
    block_sums(sums, room); // Behind it everybody has read the target's logit.
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
  __syncthreads(); // All have read the room.
  if (grid_sums(scored, room, partial, arrived) && threadIdx.x == 0) {
    score->loss += scored[0];
    score->correct += static_cast<std::int64_t>(scored[1]);
    score->count += static_cast<std::int64_t>(scored[2]);
  }
}

int put_keep_bits(const CudaStreamHandle* stream, const KeepBits& which, std::size_t words,
                  std::uint16_t* to) {
  return launch(keep_bits_kernel, blocks_for(words), k_threads, 0, stream, which, words, to);
}

int put_drop(const CudaStreamHandle* stream, std::size_t n, const Dropped& dropped,
             const ConstTypedPointer& x, const TypedPointer& to) {
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(drop_kernel<Value>, blocks_of_fours(n), k_threads, 0, stream, n, dropped,
                  x.as<Value>(), to.as<Value>());
  });
}

int put_drop_and_add(const CudaStreamHandle* stream, std::size_t n, const Dropped& dropped,
                     const ConstTypedPointer& residual, const TypedPointer& x) {
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(drop_and_add_kernel<Value>, blocks_of_fours(n), k_threads, 0, stream, n, dropped,
                  residual.as<Value>(), x.as<Value>());
  });
}

int put_gelu_backward(const CudaStreamHandle* stream, std::size_t n, const ConstTypedPointer& x,
                      const TypedPointer& dy) {
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(gelu_backward_kernel<Value>, blocks_of_fours(n), k_threads, 0, stream, n,
                  x.as<Value>(), dy.as<Value>());
  });
}

int put_gather_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                      const std::int32_t* masked, const ConstTypedPointer& x,
                      const TypedPointer& to) {
  return by_type(x.type, [&](auto value) {
    using Value = decltype(value);
    return launch(gather_masked_kernel<Value>, blocks_of_rows(s.slots()), threads_of_row(s.width),
                  0, stream, s, masked, x.as<Value>(), to.as<Value>());
  });
}

int put_scatter_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                       const std::int32_t* masked, const ConstTypedPointer& from,
                       const TypedPointer& to) {
  return by_type(to.type, [&](auto value) {
    using Value = decltype(value);
    return launch(scatter_masked_kernel<Value>, blocks_of_rows(s.slots()), threads_of_row(s.width),
                  0, stream, s, masked, from.as<Value>(), to.as<Value>());
  });
}

int put_masked_cross_entropy(const CudaStreamHandle* stream, const MaskedShape& s,
                             const std::int32_t* masked, const std::int32_t* targets,
                             const float* scale, const TypedPointer& logits, Score* score) {
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
  DTRAIN_PUT(text, keep_bits);
  DTRAIN_PUT(text, drop);
  DTRAIN_PUT(text, drop_and_add);
  DTRAIN_PUT(text, gelu_backward);
  DTRAIN_PUT(text, gather_masked);
  DTRAIN_PUT(text, scatter_masked);
  DTRAIN_PUT(text, masked_cross_entropy);
}

} // namespace trainer
