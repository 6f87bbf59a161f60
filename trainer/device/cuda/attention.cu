// Attention, computed for each head of each row: matrix products over strips of the tokens' values,
// with softmax between them. Letters as in text_kernels.h.
//
//   forward   p (T, T) = queries (T, D) · keysᵀ, softmax of each line of p, context = dropped p ·
//             values: 4·B·T²·H FLOP
//   backward  dvalues = dropped pᵀ · dcontext, dp = dcontext · valuesᵀ, softmax's gradient of each
//             line of dp, dqueries = dp · keys, dkeys = dpᵀ · queries: 8·B·T²·H FLOP
//
// Probabilities are float32 for all activation types. Each of the B·A·T² probabilities moves 20
// bytes forward and 28 backward, and a product takes 2·D FLOP for each: with heads of 64, memory
// (4.8 TB/s on an H200) and arithmetic (67 TFLOP/s of fp32) take about the same time.
#include "trainer/device/cuda/dropped.cuh"
#include "trainer/device/cuda/flash_attention.h"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/products/product.cuh"

namespace trainer {
namespace {

/// One matrix for each head: the address of row b's and head a's matrix, and its line stride.
template <typename Value>
struct OfHeads {
  Value* first;
  std::size_t a_row;
  std::size_t a_head;
  std::size_t stride;

  __device__ Value* at(std::size_t row, std::size_t head) const {
    return first + row * a_row + head * a_head;
  }
};

/// A strip of D values of a row's tokens, in (N, H) or any array whose tokens are `stride` apart.
template <typename Value>
OfHeads<Value> strips(const AttentionShape& s, Value* first, std::size_t stride) {
  return {first, s.length * stride, s.depth, stride};
}

/// Matrices of (B, A, T, T).
template <typename Value>
OfHeads<Value> squares(const AttentionShape& s, Value* first) {
  const std::size_t square = s.length * s.length;
  return {first, s.heads * square, square, s.length};
}

/// Strided, with dropout applied to the probabilities; lines run along p's rows, or across them.
template <bool AlongSteps>
struct DroppedLines {
  static constexpr bool k_along_steps = AlongSteps;
  const float* p; ///< (T, T)
  std::size_t length;
  Dropped dropped;
  std::size_t first_word;
  std::size_t words;

  __device__ float operator()(std::size_t line, std::size_t step) const {
    const std::size_t i = AlongSteps ? line : step;
    const std::size_t j = AlongSteps ? step : line;
    return p[i * length + j] * drop_factor(dropped, first_word + i * words, j);
  }
};

/// Writes a tile to memory, lines `stride` apart.
template <typename Value>
struct StoreLines {
  Value* c;
  std::size_t stride;

  __device__ void operator()(const Tile& sum, const TilePlace& place, const Extent& size) const {
    for (int r = 0; r < k_own_rows; ++r) {
      for (int own = 0; own < k_own_columns; ++own) {
        const std::size_t column = place.column + own * place.apart;
        if (place.row + r < size.m && column < size.n) {
          c[(place.row + r) * stride + column] = sum[r][own];
        }
      }
    }
  }
};

/// The tile that a block computes: row b, head a, and the tile's place in C.
struct HeadTile {
  std::size_t row;
  std::size_t head;
  std::size_t first_line;
  std::size_t first_column;
};

__device__ inline HeadTile head_tile(const Extent& size, std::size_t heads) {
  const std::size_t down = (size.m + Square::k_rows - 1) / Square::k_rows;
  const std::size_t matrix = blockIdx.x / down;
  return {matrix / heads, matrix % heads, blockIdx.x % down * Square::k_rows,
          std::size_t{blockIdx.y} * Square::k_columns};
}

template <typename A, typename B, typename Value>
__device__ void compute_tile(const Extent& size, const HeadTile& tile, const A& a, const B& b,
                             const StoreLines<Value>& end, float* room) {
  Tile sum = {};
  const TilePlace place =
      multiply_tile(size, a, b, tile.first_line, tile.first_column, 0, size.k, room, sum);
  end(sum, place, size);
}

/// c = a · b for each head; a and b may each be transposed.
template <bool AlongA, bool AlongB, typename A, typename B, typename C>
__global__ void __launch_bounds__(k_product_threads)
    heads_kernel(Extent size, std::size_t heads, OfHeads<const A> a, OfHeads<const B> b,
                 OfHeads<C> c) {
  DYNAMIC_SHARED(float, room);
  const HeadTile tile = head_tile(size, heads);
  compute_tile(size, tile, Strided<AlongA, A>{a.at(tile.row, tile.head), a.stride},
               Strided<AlongB, B>{b.at(tile.row, tile.head), b.stride},
               StoreLines<C>{c.at(tile.row, tile.head), c.stride}, room);
}

/// c = dropped p · b, or dropped pᵀ · b.
template <bool Along, typename Value>
__global__ void __launch_bounds__(k_product_threads)
    dropped_heads_kernel(Extent size, AttentionShape s, Dropped dropped, OfHeads<const float> p,
                         OfHeads<const Value> b, OfHeads<Value> c) {
  DYNAMIC_SHARED(float, room);
  const HeadTile tile = head_tile(size, s.heads);
  const std::size_t first_line = (tile.row * s.heads + tile.head) * s.length;
  const std::size_t words = s.words_a_line();
  compute_tile(
      size, tile,
      DroppedLines<Along>{p.at(tile.row, tile.head), s.length, dropped, first_line * words, words},
      Strided<false, Value>{b.at(tile.row, tile.head), b.stride},
      StoreLines<Value>{c.at(tile.row, tile.head), c.stride}, room);
}

dim3 head_grid(const AttentionShape& s, const Extent& size) {
  return {static_cast<unsigned>(s.rows * s.heads) * tiles_of(size.m, Square::k_rows),
          tiles_of(size.n, Square::k_columns), 1};
}

template <bool AlongA, bool AlongB, typename A, typename B, typename C>
int put_heads(const CudaStreamHandle* stream, const AttentionShape& s, const Extent& size,
              const OfHeads<const A>& a, const OfHeads<const B>& b, const OfHeads<C>& c) {
  return launch(heads_kernel<AlongA, AlongB, A, B, C>, head_grid(s, size), k_product_threads,
                Square::k_room, stream, size, s.heads, a, b, c);
}

template <bool Along, typename Value>
int put_dropped_heads(const CudaStreamHandle* stream, const AttentionShape& s,
                      const Dropped& dropped, const float* p, const OfHeads<const Value>& b,
                      const OfHeads<Value>& c) {
  const Extent size{s.length, s.depth, s.length, s.length};
  return launch(dropped_heads_kernel<Along, Value>, head_grid(s, size), k_product_threads,
                Square::k_room, stream, size, s, dropped, squares(s, p), b, c);
}

/// One warp per line: p = softmax(p · scale) over the row's first tokens, 0 after them. 8 bytes per
/// probability; the second read comes from the caches.
__global__ void lines_softmax(AttentionShape s, const std::int32_t* lengths, float scale,
                              float* p) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  for (std::size_t line = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       line < s.lines(); line += std::size_t{gridDim.x} * k_warps) {
    const std::int32_t length = lengths[line / (s.heads * s.length)];
    const std::size_t most = length < 1 ? 1 : static_cast<std::size_t>(length);
    const std::size_t own = line % s.length + 1;
    const std::size_t keys = s.is_causal && own < most ? own : most;
    float* const x = p + line * s.length;
    float largest = -INFINITY;
    for (std::size_t j = lane; j < keys; j += k_warp_lanes) {
      largest = x[j] > largest ? x[j] : largest;
    }
    largest = warp_largest(largest);
    float sum = 0;
    for (std::size_t j = lane; j < keys; j += k_warp_lanes) {
      const float value = expf((x[j] - largest) * scale);
      x[j] = value;
      sum += value;
    }
    const float share = 1 / warp_sum(sum);
    for (std::size_t j = lane; j < s.length; j += k_warp_lanes) {
      x[j] = j < keys ? x[j] * share : 0.0F;
    }
  }
}

/// One warp per line: turns dp, the gradient of the dropped probabilities, into the gradient of
/// softmax's input. 12 bytes per probability.
__global__ void lines_softmax_backward(AttentionShape s, Dropped dropped, float scale,
                                       const float* p, float* dp) {
  const std::size_t lane = threadIdx.x % k_warp_lanes;
  for (std::size_t line = std::size_t{blockIdx.x} * k_warps + threadIdx.x / k_warp_lanes;
       line < s.lines(); line += std::size_t{gridDim.x} * k_warps) {
    const float* const x = p + line * s.length;
    float* const dx = dp + line * s.length;
    const std::size_t word = line * s.words_a_line();
    float mean = 0;
    for (std::size_t j = lane; j < s.length; j += k_warp_lanes) {
      const float change = dx[j] * drop_factor(dropped, word, j);
      dx[j] = change;
      mean += x[j] * change;
    }
    mean = warp_sum(mean);
    for (std::size_t j = lane; j < s.length; j += k_warp_lanes) {
      dx[j] = (dx[j] - mean) * x[j] * scale;
    }
  }
}

/// Launches several kernels in order; stops at the first error and returns it.
template <typename... Puts>
int put_all(const Puts&... puts) {
  int error = 0;
  ((error = error != 0 ? error : puts()), ...);
  return error;
}

float scale_of(const AttentionShape& s) { return 1 / sqrtf(static_cast<float>(s.depth)); }

template <typename Value>
int put_squares(const CudaStreamHandle* stream, const AttentionShape& s,
                const std::int32_t* lengths, const Dropped& dropped, const Heads<const Value*>& of,
                float* p, Value* context) {
  const std::size_t t = s.length;
  const std::size_t row = of.row(s.width());
  return put_all(
      [&] {
        return put_heads<true, true>(stream, s, {t, t, s.depth, s.depth}, strips(s, of.query, row),
                                     strips(s, of.key, row), squares(s, p));
      },
      [&] {
        return launch(lines_softmax, blocks_for(s.lines(), k_warps), k_threads, 0, stream, s,
                      lengths, scale_of(s), p);
      },
      [&] {
        return put_dropped_heads<true>(stream, s, dropped, p, strips(s, of.value, row),
                                       strips(s, context, s.width()));
      });
}

template <typename Value>
int put_squares_backward(const CudaStreamHandle* stream, const AttentionShape& s,
                         const Dropped& dropped, const Heads<const Value*>& of, const float* p,
                         const Value* dcontext, float* room, const Heads<Value*>& changes) {
  const std::size_t t = s.length;
  const float* const dp = room;
  const std::size_t row = of.row(s.width());
  const std::size_t to_row = changes.row(s.width());
  const OfHeads<const Value> dstrips = strips(s, dcontext, s.width());
  return put_all(
      [&] {
        return put_dropped_heads<false>(stream, s, dropped, p, dstrips,
                                        strips(s, changes.value, to_row));
      },
      [&] {
        return put_heads<true, true>(stream, s, {t, t, s.depth, s.depth}, dstrips,
                                     strips(s, of.value, row), squares(s, room));
      },
      [&] {
        return launch(lines_softmax_backward, blocks_for(s.lines(), k_warps), k_threads, 0, stream,
                      s, dropped, scale_of(s), p, room);
      },
      [&] {
        return put_heads<true, false>(stream, s, {t, s.depth, t, t}, squares(s, dp),
                                      strips(s, of.key, row), strips(s, changes.query, to_row));
      },
      [&] {
        return put_heads<false, false>(stream, s, {t, s.depth, t, t}, squares(s, dp),
                                       strips(s, of.query, row), strips(s, changes.key, to_row));
      });
}

std::size_t room_of(const CudaStreamHandle* stream, const AttentionShape& s) {
  return is_flash(stream, s) ? s.lines() : s.lines() * s.length;
}

int put_attention(const CudaStreamHandle* stream, const AttentionShape& s,
                  const std::int32_t* lengths, const Dropped& dropped,
                  const Heads<ConstTypedPointer>& of, float* p, const TypedPointer& context) {
  const std::size_t tokens = s.rows * s.length;
  stream->narrowed->forget(p, room_of(stream, s));
  stream->narrowed->forget(context, tokens * s.width());
  if (is_flash(stream, s)) {
    return put_flash_attention(stream, s, lengths, dropped, of, p, context);
  }
  return by_type(context.type, [&](auto value) {
    using Value = decltype(value);
    return put_squares(stream, s, lengths, dropped, heads_of<const Value>(of, s.width()), p,
                       context.as<Value>());
  });
}

int put_attention_backward(const CudaStreamHandle* stream, const AttentionShape& s,
                           const std::int32_t* lengths, const Dropped& dropped,
                           const Heads<ConstTypedPointer>& of, const float* p,
                           const ConstTypedPointer& context, const ConstTypedPointer& dcontext,
                           float* room, const Heads<TypedPointer>& changes) {
  const std::size_t tokens = s.rows * s.length;
  stream->narrowed->forget(room, room_of(stream, s));
  for (const TypedPointer& change : {changes.query, changes.key, changes.value}) {
    stream->narrowed->forget(change, tokens * changes.row(s.width()));
  }
  if (is_flash(stream, s)) {
    return put_flash_backward(stream, s, lengths, dropped, of, p, context, dcontext, room, changes);
  }
  return by_type(dcontext.type, [&](auto value) {
    using Value = decltype(value);
    return put_squares_backward(stream, s, dropped, heads_of<const Value>(of, s.width()), p,
                                dcontext.as<Value>(), room, heads_of<Value>(changes, s.width()));
  });
}

} // namespace

void set_attention_kernels(TextKernels& text) {
  DTRAIN_PUT_AND_TELL(text, attention);
  DTRAIN_PUT_AND_TELL(text, attention_backward);
  text.attention_room = [](const Stream& on, const AttentionShape& s) {
    return room_of(handle_of(on), s);
  };
}

} // namespace trainer
