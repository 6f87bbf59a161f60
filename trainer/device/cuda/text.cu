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

/// 4 bytes and a bit read, 4 written.
__global__ void drop_kernel(std::size_t n, Dropped dropped, const float* x, float* to) {
  const auto drop = [&]<int N>(std::size_t i, Pack<float, N>& from, Pack<float, N>& left) {
    const Pack<float, N> by = drop_factors<N>(dropped, i);
    for (int k = 0; k < N; ++k) {
      left.at[k] = from.at[k] * by.at[k];
    }
  };
  each_pack(of_grid(), n, true, drop, x, to);
}

/// 8 bytes and a bit read, 4 written.
__global__ void drop_and_add_kernel(std::size_t n, Dropped dropped, const float* residual,
                                    float* x) {
  const auto drop = [&]<int N>(std::size_t i, Pack<float, N>& added, Pack<float, N>& to) {
    const Pack<float, N> by = drop_factors<N>(dropped, i);
    for (int k = 0; k < N; ++k) {
      to.at[k] = to.at[k] * by.at[k] + added.at[k];
    }
  };
  each_pack(of_grid(), n, true, drop, residual, x);
}

constexpr int k_row_threads = 512; ///< Of a block that takes rows, at most.
constexpr std::size_t k_row_warps = k_row_threads / k_warp_lanes;

/// Of `kept` fours each.
inline unsigned threads_of_row(std::size_t width, std::size_t kept = 1) {
  return blocks_for(width, k_four * kept * k_warp_lanes, k_row_warps) * k_warp_lanes;
}
inline unsigned blocks_of_rows(std::size_t rows) { return blocks_for(rows, 1, 8 * k_most_blocks); }

/// A block a token: 4 bytes read of words, 4 written; types and positions stay in the caches.
__global__ void embed_kernel(TextShape s, const std::int32_t* ids, const float* words,
                             const float* type, const float* positions, float* to) {
  for (std::size_t token = blockIdx.x; token < s.tokens(); token += gridDim.x) {
    const float* const word = words + static_cast<std::size_t>(ids[token]) * s.width;
    const float* const position = positions + token % s.length * s.width;
    float* const row = to + token * s.width;
    if (type == nullptr) {
      each(
          of_block(), s.width, [](float a, float b, float& sum) { sum = a + b; }, word, position,
          row);
    } else {
      each(
          of_block(), s.width, [](float a, float b, float c, float& sum) { sum = a + b + c; }, word,
          type, position, row);
    }
  }
}

/// A warp a token: puts its number where it is among all, sorted by words, and those of one word in
/// their order. N² ids, of N = 8,192 0.3 GB from the first cache: some 10 µs.
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

/// Sorted tokens, in chunks that are added up by a block each. Of one word they are a run, whose
/// parts in several chunks are put together in their order: nothing is added in whatever order.
struct Runs {
  std::size_t tokens;
  std::size_t width;
  std::size_t a_chunk;
  const std::int32_t* ids;
  const std::int32_t* sorted;
  const float* dy;
  float* dwords;
  float* heads; ///< (chunks, width): the part of a run that began in a chunk before,
  float* tails; ///< and of one that begins here and goes on in the next.

  /// Of sorted token i; -1 behind the last.
  __device__ std::int32_t word(std::size_t i) const { return i < tokens ? ids[sorted[i]] : -1; }
  /// Whether token i is of the run of the one before.
  __device__ bool goes_on(std::size_t i) const { return i > 0 && word(i - 1) == word(i); }
};

template <int N>
__device__ void add(const Pack<float, N>& values, Pack<float, N>& to) {
  for (int k = 0; k < N; ++k) {
    to.at[k] += values.at[k];
  }
}

/// A block a chunk: 4 bytes read a value of dy, and 8 read and written of each word's.
template <int N>
__global__ void add_runs(Runs r) {
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
        rows[i] = load<N>(r.dy + static_cast<std::size_t>(r.sorted[at + i]) * r.width + column);
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

/// A block a chunk in which a run begins that goes on: 4 bytes read of each of its parts.
template <int N>
__global__ void join_runs(Runs r) {
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

/// A thread four values of a position's row: 4 bytes read a value of dy.
__global__ void embed_positions_backward(TextShape s, const float* dy, float* dpositions) {
  const std::size_t values = s.length * s.width;
  const auto work = [&]<int N>(std::size_t i, Pack<float, N>& to) {
    Pack<float, N> sum = {};
    for (std::size_t row = 0; row < s.rows; ++row) {
      add(load<N>(dy + row * values + i), sum);
    }
    add(sum, to);
  };
  each_pack(of_grid(), values, values % k_four == 0 && are_fours(dy), work, dpositions);
}

/// `Kept` fours of a row in a thread's registers: those at threadIdx.x, + blockDim.x, …; zeros past
/// the row's end.
template <int Kept>
struct Fours {
  Pack<float, k_four> at[Kept];

  /// Where number k begins in the row.
  __device__ static std::size_t column(int k) {
    return k_four * (threadIdx.x + static_cast<std::size_t>(k) * blockDim.x);
  }
  __device__ static Fours of(const float* row, std::size_t width) {
    Fours fours = {};
    for (int k = 0; k < Kept; ++k) {
      if (column(k) < width) {
        fours.at[k] = load<k_four>(row + column(k));
      }
    }
    return fours;
  }
  __device__ void write(std::size_t width, float* row) const {
    for (int k = 0; k < Kept; ++k) {
      if (column(k) < width) {
        store(at[k], row + column(k));
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

/// A block a row, of which the next is loaded meanwhile: 4 bytes read, 4 written.
template <int Kept>
__global__ void __launch_bounds__(k_row_threads)
    norm_kept(NormShape s, const float* x, const float* gain, const float* shift, float* y,
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

  __device__ static NormRow of(const NormShape& s, std::size_t row, const float* x,
                               const float* moments, const float* dy) {
    return {Fours<Kept>::of(x + row * s.width, s.width),
            Fours<Kept>::of(dy + row * s.width, s.width), moments[2 * row], moments[2 * row + 1]};
  }
};

/// Likewise, 8 bytes read and 4 written; a block's sums of what becomes dgain and dshift are a row
/// of `partial` (blocks, 2, width).
template <int Kept>
__global__ void __launch_bounds__(k_row_threads)
    norm_backward_kept(NormShape s, const float* x, const float* moments, const float* gain,
                       float* dy, float* partial) {
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

/// Any rows, a warp each: 4 bytes read, which stay in the caches for two more passes, and 4
/// written.
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

/// Any rows, a warp each, beside two sums of columns: 8 bytes read, 4 written.
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
  each(
      of_grid(), n, [](float u, float& change) { change *= gelu_slope(u); }, x, dy);
}

/// A block a slot: 4 bytes read and 4 written a value of what is masked.
__global__ void gather_masked_kernel(MaskedShape s, const std::int32_t* masked, const float* x,
                                     float* to) {
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    float* const row = to + slot * s.width;
    if (masked[slot] < 0) {
      each(
          of_block(), s.width, [](float& value) { value = 0; }, row);
    } else {
      const std::size_t token =
          slot / s.most_masked * s.length + static_cast<std::size_t>(masked[slot]);
      each(
          of_block(), s.width, [](float from, float& value) { value = from; }, x + token * s.width,
          row);
    }
  }
}

/// The same. No two slots are of one token.
__global__ void scatter_masked_kernel(MaskedShape s, const std::int32_t* masked, const float* from,
                                      float* to) {
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    if (masked[slot] >= 0) {
      const std::size_t token =
          slot / s.most_masked * s.length + static_cast<std::size_t>(masked[slot]);
      each(
          of_block(), s.width, [](float value, float& row) { row = value; }, from + slot * s.width,
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

// Of many logits a block of as many threads as there are has a multiprocessor for itself: so the
// rows under way, of 132 times 50,304 logits 27 MB, are still in the second cache when they are
// read again.
constexpr std::size_t k_many_logits = 8192;
constexpr int k_most_threads = 1024;
constexpr std::size_t k_rows_in_cache = 132;
constexpr std::size_t k_score_room = (k_most_threads / k_warp_lanes) * 3; ///< Doubles.

/// A block a slot: 4 bytes read of each logit, twice, and 4 written; two exponentials each.
__global__ void __launch_bounds__(k_most_threads)
    masked_cross_entropy_kernel(MaskedShape s, const std::int32_t* masked,
                                const std::int32_t* targets, const float* scale, float* logits,
                                double* partial, unsigned* arrived, Score* score) {
  DYNAMIC_SHARED(double, room);
  auto* const room_of_largest = reinterpret_cast<float*>(room + k_score_room);
  double scored[3] = {0, 0, 0}; // Loss, correct and count, by the first thread.
  for (std::size_t slot = blockIdx.x; slot < s.slots(); slot += gridDim.x) {
    float* const z = logits + slot * s.width;
    if (masked[slot] < 0) {
      each(
          of_block(), s.width, [](float& logit) { logit = 0; }, z);
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
    const auto add = [&]<int N>(std::size_t /*word*/, const Pack<float, N>& some) {
      float most = some.at[0];
      for (const float value : some.at) {
        most = value > most ? value : most;
      }
      if (most > own_largest) {
        own *= expf(own_largest - most);
        own_largest = most;
      }
      for (const float value : some.at) {
        own += expf(value - own_largest);
      }
    };
    each_pack(of_block(), s.width, true, add, static_cast<const float*>(z));
    const float largest = block_largest(own_largest, room_of_largest);
    sums[1] = double{own * expf(own_largest - largest)};
    block_sums(sums, room); // Behind it everybody has read the target's logit.
    if (scale != nullptr) {
      const float weight = *scale / static_cast<float>(sums[0]);
      const auto share = static_cast<float>(1 / sums[1]);
      const auto change = [&]<int N>(std::size_t word, Pack<float, N>& some) {
        for (int k = 0; k < N; ++k) {
          const float p = expf(some.at[k] - largest) * share;
          some.at[k] = (p - (word + k == target ? 1.0F : 0.0F)) * weight;
        }
      };
      each_pack(of_block(), s.width, true, change, z);
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

int put_drop(const CudaStreamHandle* stream, std::size_t n, const Dropped& dropped, const float* x,
             float* to) {
  return launch(drop_kernel, blocks_of_fours(n), k_threads, 0, stream, n, dropped, x, to);
}

int put_drop_and_add(const CudaStreamHandle* stream, std::size_t n, const Dropped& dropped,
                     const float* residual, float* x) {
  return launch(drop_and_add_kernel, blocks_of_fours(n), k_threads, 0, stream, n, dropped, residual,
                x);
}

int put_embed(const CudaStreamHandle* stream, const TextShape& s, const std::int32_t* ids,
              const float* words, const float* type, const float* positions, float* to) {
  return launch(embed_kernel, blocks_of_rows(s.tokens()), threads_of_row(s.width), 0, stream, s,
                ids, words, type, positions, to);
}

/// Of so many tokens at once at most, which are sorted in the stream's own memory.
constexpr std::size_t k_sorted = std::size_t{1} << 16;

int put_words_backward(const CudaStreamHandle* stream, std::size_t tokens, std::size_t width,
                       const std::int32_t* ids, const float* dy, float* dwords) {
  constexpr std::size_t k_least_chunk = 32;
  auto* const sorted = reinterpret_cast<std::int32_t*>(stream->partial);
  float* const heads = reinterpret_cast<float*>(stream->partial) + k_sorted;
  const std::size_t most = (2 * k_cuda_partials - k_sorted) / (2 * width);
  const unsigned chunks = blocks_for(tokens, k_least_chunk, most < 1 ? 1 : most);
  const std::size_t a_chunk = (tokens + chunks - 1) / chunks;
  const Runs runs = {
      tokens, width, a_chunk, ids, sorted, dy, dwords, heads, heads + chunks * width};
  const bool by_fours = width % k_four == 0 && are_fours(dy, dwords);
  const unsigned threads = by_fours ? threads_of_row(width) : k_threads;
  const dim3 grid(tiles_of(tokens, a_chunk), tiles_of(width, threads * (by_fours ? k_four : 1)), 1);
  int error =
      launch(sort_tokens, blocks_for(tokens, k_warps), k_threads, 0, stream, tokens, ids, sorted);
  if (error == 0) {
    error = launch(by_fours ? add_runs<k_four> : add_runs<1>, grid, threads, 0, stream, runs);
  }
  return error != 0
             ? error
             : launch(by_fours ? join_runs<k_four> : join_runs<1>, grid, threads, 0, stream, runs);
}

int put_embed_backward(const CudaStreamHandle* stream, const TextShape& s, const std::int32_t* ids,
                       const float* dy, float* dwords, float* dtype, float* dpositions) {
  int error = 0;
  for (std::size_t first = 0; error == 0 && first < s.tokens(); first += k_sorted) {
    const std::size_t tokens = s.tokens() - first < k_sorted ? s.tokens() - first : k_sorted;
    error = put_words_backward(stream, tokens, s.width, ids + first, dy + first * s.width, dwords);
  }
  if (error == 0) {
    error = launch(embed_positions_backward, blocks_of_fours(s.length * s.width), k_threads, 0,
                   stream, s, dy, dpositions);
  }
  return error != 0 || dtype == nullptr ? error
                                        : put_column_sums(stream, s.tokens(), s.width,
                                                          Strided<true>{dy, s.width}, true, dtype);
}

int put_norm(const CudaStreamHandle* stream, const NormShape& s, const float* x, const float* gain,
             const float* shift, float* y, float* moments) {
  const std::size_t kept = kept_of(s.width, x, gain, shift, y);
  if (kept == 0) {
    return launch(norm_kernel, blocks_for(s.rows, k_warps), k_threads, 0, stream, s, x, gain, shift,
                  y, moments);
  }
  const std::size_t rows = s.rows / k_most_blocks; // Eight a block where there are many.
  const unsigned blocks = blocks_for(s.rows, rows < 1 ? 1 : rows < 8 ? rows : 8, 8 * k_most_blocks);
  return launch(kept == 1 ? norm_kept<1> : norm_kept<2>, blocks, threads_of_row(s.width, kept),
                2 * k_row_warps * sizeof(float), stream, s, x, gain, shift, y, moments);
}

int put_norm_backward(const CudaStreamHandle* stream, const NormShape& s, const float* x,
                      const float* moments, const float* gain, bool accumulate, float* dy,
                      float* dgain, float* dshift) {
  const std::size_t kept = kept_of(s.width, x, gain, dy);
  if (kept == 0) {
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
  // As many as 132 multiprocessors hold at once, of eight rows or more each.
  constexpr std::size_t k_rows_a_block = 8;
  const unsigned threads = threads_of_row(s.width, kept);
  const std::size_t most = 132 * (4 * k_threads / kept / threads);
  const unsigned blocks = blocks_for(s.rows, k_rows_a_block, most);
  auto* const of_columns = reinterpret_cast<float*>(stream->partial);
  float* const partial = of_columns + k_column_partials;
  const int error =
      launch(kept == 1 ? norm_backward_kept<1> : norm_backward_kept<2>, blocks, threads,
             4 * k_row_warps * sizeof(float), stream, s, x, moments, gain, dy, partial);
  return error != 0
             ? error
             : put_column_sums(stream, blocks, 2 * s.width, Strided<true>{partial, 2 * s.width},
                               accumulate, NormChanges{s.width, dgain, dshift}, of_columns);
}

int put_gelu_backward(const CudaStreamHandle* stream, std::size_t n, const float* x, float* dy) {
  return launch(gelu_backward_kernel, blocks_of_fours(n), k_threads, 0, stream, n, x, dy);
}

int put_gather_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                      const std::int32_t* masked, const float* x, float* to) {
  return launch(gather_masked_kernel, blocks_of_rows(s.slots()), threads_of_row(s.width), 0, stream,
                s, masked, x, to);
}

int put_scatter_masked(const CudaStreamHandle* stream, const MaskedShape& s,
                       const std::int32_t* masked, const float* from, float* to) {
  return launch(scatter_masked_kernel, blocks_of_rows(s.slots()), threads_of_row(s.width), 0,
                stream, s, masked, from, to);
}

int put_masked_cross_entropy(const CudaStreamHandle* stream, const MaskedShape& s,
                             const std::int32_t* masked, const std::int32_t* targets,
                             const float* scale, float* logits, Score* score) {
  const bool are_many = s.width >= k_many_logits;
  return launch(masked_cross_entropy_kernel,
                blocks_for(s.slots(), 1, are_many ? k_rows_in_cache : k_most_blocks),
                are_many ? k_most_threads : k_threads,
                k_score_room * sizeof(double) + k_most_threads / k_warp_lanes * sizeof(float),
                stream, s, masked, targets, scale, logits, stream->partial, stream->arrived, score);
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
