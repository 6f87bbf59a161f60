// Parts of flash attention: moving tiles of queries, keys and values in bf16 from memory to tensor
// core products. Letters as in text_kernels.h.
#pragma once

#include "trainer/device/cuda/dropped.cuh"
#include "trainer/device/cuda/flash_attention.h"
#include "trainer/device/cuda/products/mma.cuh"
#include "trainer/device/cuda/sums.cuh"
#include "trainer/device/halves.h"

namespace trainer {
namespace {

constexpr int k_step = 16; ///< Depth of one mma, and rows of a strip.

/// Tiling of a kernel: a warp has `Strips` strips of rows, a block has `Warps` warps. They process
/// tiles of `Tile` other tokens, `Chunk` tokens at a time. Registers are limited so that `Blocks`
/// blocks fit on a multiprocessor.
template <int Depth_, int Strips_, int Warps_, int Tile_, int Chunk_, int Blocks_ = 1>
struct Cut {
  static constexpr int k_depth = Depth_;
  static constexpr int k_strips = Strips_;
  static constexpr int k_threads = Warps_ * k_warp_lanes;
  static constexpr int k_rows = Strips_ * k_step; ///< Rows of a warp.
  static constexpr int k_lines = Warps_ * k_rows; ///< Rows of a block.
  static constexpr int k_blocks = Blocks_;
  static constexpr int k_tile = Tile_;
  static constexpr int k_chunk = Chunk_;
  /// Row stride of a tile in shared memory: 16 bytes of eight rows fall into different banks.
  static constexpr int k_pitch = Depth_ + 8;
  static constexpr int k_tile_values = Tile_ * k_pitch;

  using Factors = FactorA[Strips_][Depth_ / k_step];
  using Out = Sums[Strips_][Depth_ / 8];
  using Scores = Sums[Strips_][Chunk_ / 8];
};

/// One head's part of (N, H): D values of each of T tokens.
template <typename Value>
struct Head {
  Value* first;
  std::size_t stride;
  int length;

  __device__ Value* at(int token) const { return first + static_cast<std::size_t>(token) * stride; }
};

/// What a block and a thread work on.
struct Place {
  std::size_t line;   ///< First line of its head, in (B, A, T).
  std::size_t token;  ///< First token of its row, of N,
  std::size_t column; ///< and first column of its head in H.
  int length;         ///< T
  int keys;           ///< Keys that queries of this row see.
  int first;          ///< First query or key of the block.
  int warp_first;     ///< The same of this thread's warp.
  int group;          ///< Group of four lanes, which share a row and the row eight below it,
  int in_group;       ///< and the number of this thread in the group.
  int square_row;     ///< For ldmatrix: the row whose address this thread gives,
  int square;         ///< and its square, of four.

  /// The token of a row that this thread shares.
  __device__ int row(int strip, int half) const {
    return warp_first + strip * k_step + group + half * 8;
  }
};

/// `IsLastFirst`: blocks of the last lines start first, as they have most to do with a causal mask.
template <typename C, bool IsLastFirst>
__device__ Place place_of(const AttentionShape& s, const std::int32_t* lengths) {
  const unsigned tiles = static_cast<unsigned>((s.length + C::k_lines - 1) / C::k_lines);
  const unsigned matrices = gridDim.x / tiles;
  const std::size_t matrix = blockIdx.x % matrices;
  const unsigned tile = blockIdx.x / matrices;
  const std::size_t row = matrix / s.heads;
  const int lane = static_cast<int>(threadIdx.x) % k_warp_lanes;
  const int first = static_cast<int>(IsLastFirst ? tiles - 1 - tile : tile) * C::k_lines;
  const std::int32_t length = lengths[row];
  return {matrix * s.length,
          row * s.length,
          matrix % s.heads * s.depth,
          static_cast<int>(s.length),
          length < 1 ? 1 : length,
          first,
          first + static_cast<int>(threadIdx.x) / k_warp_lanes * C::k_rows,
          lane / 4,
          lane % 4,
          lane % 8,
          lane / 8};
}

/// One head's strip of an array whose tokens are `stride` apart.
template <typename Value>
__device__ Head<Value> head(const Place& place, Value* all, std::size_t stride) {
  return {all + place.token * stride + place.column, stride, place.length};
}

/// Starts copying a tile to shared memory; zeros after the last token.
template <typename C>
__device__ void copy_tile(const Head<const Bf16Value>& from, int first, Bf16Value* to) {
  constexpr int k_pieces = C::k_depth / 8; // 16-byte pieces of a row.
  DTRAIN_UNROLL
  for (int part = 0; part < (C::k_tile * k_pieces + C::k_threads - 1) / C::k_threads; ++part) {
    const int i = part * C::k_threads + static_cast<int>(threadIdx.x);
    if (C::k_tile * k_pieces % C::k_threads == 0 || i < C::k_tile * k_pieces) {
      const int row = i / k_pieces;
      const int column = i % k_pieces * 8;
      const bool is_there = first + row < from.length;
      copy_behind<16>(from.at(is_there ? first + row : 0) + column, to + row * C::k_pitch + column,
                      is_there);
    }
  }
}

/// A warp's rows as operand A of products along their depth.
template <typename C>
__device__ void load_factors(const Head<const Bf16Value>& from, const Place& place,
                             typename C::Factors& a) {
  DTRAIN_UNROLL
  for (int strip = 0; strip < C::k_strips; ++strip) {
    DTRAIN_UNROLL
    for (int step = 0; step < C::k_depth / k_step; ++step) {
      DTRAIN_UNROLL
      for (int word = 0; word < 4; ++word) {
        const int token = place.row(strip, word % 2);
        const int column = step * k_step + word / 2 * 8 + 2 * place.in_group;
        a[strip][step][word] =
            token < from.length ? *reinterpret_cast<const std::uint32_t*>(from.at(token) + column)
                                : 0;
      }
    }
  }
}

/// sums += a · rowsᵀ, along the depth, for the chunk that begins at `rows`.
template <typename C>
__device__ void add_by_rows(const typename C::Factors& a, const Bf16Value* rows, const Place& place,
                            typename C::Scores& sums) {
  const Bf16Value* const own =
      rows + (place.square / 2 * 8 + place.square_row) * C::k_pitch + place.square % 2 * 8;
  DTRAIN_UNROLL
  for (int step = 0; step < C::k_depth / k_step; ++step) {
    DTRAIN_UNROLL
    for (int j = 0; j < C::k_chunk / 8; j += 2) {
      Squares b;
      load_squares(own + j * 8 * C::k_pitch + step * k_step, b);
      DTRAIN_UNROLL
      for (int strip = 0; strip < C::k_strips; ++strip) {
        add_mma(sums[strip][j], a[strip][step], b[0], b[1]);
        add_mma(sums[strip][j + 1], a[strip][step], b[2], b[3]);
      }
    }
  }
}

/// sums += scores · rows, along the tokens of the chunk that begins at `rows`.
template <typename C>
__device__ void add_along_rows(const typename C::Scores& scores, const Bf16Value* rows,
                               const Place& place, typename C::Out& sums) {
  const Bf16Value* const own =
      rows + (place.square % 2 * 8 + place.square_row) * C::k_pitch + place.square / 2 * 8;
  DTRAIN_UNROLL
  for (int step = 0; step < C::k_chunk / k_step; ++step) {
    FactorA a[C::k_strips];
    DTRAIN_UNROLL
    for (int strip = 0; strip < C::k_strips; ++strip) {
      pack_sums(scores[strip][2 * step], scores[strip][2 * step + 1], a[strip]);
    }
    DTRAIN_UNROLL
    for (int j = 0; j < C::k_depth / 8; j += 2) {
      Squares b;
      load_turned_squares(own + step * k_step * C::k_pitch + j * 8, b);
      DTRAIN_UNROLL
      for (int strip = 0; strip < C::k_strips; ++strip) {
        add_mma(sums[strip][j], a[strip], b[0], b[1]);
        add_mma(sums[strip][j + 1], a[strip], b[2], b[3]);
      }
    }
  }
}

/// Multiplies each of a warp's rows by its own factor in `by`.
template <typename C>
__device__ void store(const typename C::Out& sums, const float (&by)[C::k_strips][2],
                      const Place& place, const Head<Bf16Value>& to) {
  DTRAIN_UNROLL
  for (int strip = 0; strip < C::k_strips; ++strip) {
    DTRAIN_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int token = place.row(strip, half);
      if (token < to.length) {
        DTRAIN_UNROLL
        for (int j = 0; j < C::k_depth / 8; ++j) {
          *reinterpret_cast<std::uint32_t*>(to.at(token) + j * 8 + 2 * place.in_group) =
              pack_bf16(sums[strip][j][2 * half] * by[strip][half],
                        sums[strip][j][2 * half + 1] * by[strip][half]);
        }
      }
    }
  }
}

/// Reduces over the four lanes that share a row.
__device__ inline float group_sum(float value) {
  value += __shfl_xor_sync(k_all_lanes, value, 1);
  return value + __shfl_xor_sync(k_all_lanes, value, 2);
}
__device__ inline float group_largest(float value) {
  value = fmaxf(value, __shfl_xor_sync(k_all_lanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(k_all_lanes, value, 2));
}

/// Number of keys that any query up to `last` sees.
__device__ inline int keys_up_to(const AttentionShape& s, const Place& place, int last) {
  return s.is_causal && last + 1 < place.keys ? last + 1 : place.keys;
}

/// Calls act(strip, square of columns, value) for each score of a chunk that this thread holds.
template <typename C, typename Act>
__device__ void each_score(const Act& act) {
  DTRAIN_UNROLL
  for (int strip = 0; strip < C::k_strips; ++strip) {
    DTRAIN_UNROLL
    for (int j = 0; j < C::k_chunk / 8; ++j) {
      DTRAIN_UNROLL
      for (int i = 0; i < 4; ++i) {
        act(strip, j, i);
      }
    }
  }
}
/// Calls act(strip, half) for each row that this thread shares.
template <typename C, typename Act>
__device__ void each_row(const Act& act) {
  DTRAIN_UNROLL
  for (int strip = 0; strip < C::k_strips; ++strip) {
    DTRAIN_UNROLL
    for (int half = 0; half < 2; ++half) {
      act(strip, half);
    }
  }
}

/// Sets scores to -∞ where a query does not see a key, in a chunk whose columns begin at token
/// `column0`. With RowsAreQueries the columns are keys; otherwise the rows are.
template <typename C, bool RowsAreQueries>
__device__ void hide(const AttentionShape& s, const Place& place, int column0,
                     typename C::Scores& scores) {
  each_score<C>([&](int strip, int j, int i) {
    const int row = place.row(strip, i / 2);
    const int column = column0 + j * 8 + 2 * place.in_group + i % 2;
    const int query = RowsAreQueries ? row : column;
    const int key = RowsAreQueries ? column : row;
    const bool is_seen = key < place.keys && !(s.is_causal && key > query);
    scores[strip][j][i] = is_seen ? scores[strip][j][i] : -INFINITY;
  });
}

/// Dropout factors of a chunk's probabilities: a word holds the keep bits of 16 keys of a query, a
/// row or a column of two squares.
template <typename C, bool RowsAreQueries>
class DropFactors {
 public:
  __device__ DropFactors(const AttentionShape& s, const Place& place, const Dropped& dropped,
                         int column0)
      : dropped_(dropped), in_group_(place.in_group), group_(place.group) {
    DTRAIN_UNROLL
    for (int strip = 0; strip < C::k_strips; ++strip) {
      const int row = place.warp_first + strip * k_step;
      if constexpr (RowsAreQueries) {
        DTRAIN_UNROLL
        for (int i = 0; i < k_words; ++i) {
          words_[strip][i] =
              word(s, place, row + place.group + i % 2 * 8, column0 + i / 2 * k_step);
        }
      } else {
        DTRAIN_UNROLL
        for (int i = 0; i < k_words; ++i) {
          words_[strip][i] = word(s, place, column0 + i / 2 * 8 + 2 * place.in_group + i % 2, row);
        }
      }
    }
  }
  __device__ float of(int strip, int j, int i) const {
    const unsigned bits =
        RowsAreQueries ? words_[strip][j / 2 * 2 + i / 2] >> (j % 2 * 8 + 2 * in_group_ + i % 2)
                       : words_[strip][j * 2 + i % 2] >> (group_ + i / 2 * 8);
    return (bits & 1U) != 0 ? dropped_.scale : 0.0F;
  }

 private:
  static constexpr int k_words = RowsAreQueries ? C::k_chunk / 8 : C::k_chunk / 4;

  __device__ unsigned word(const AttentionShape& s, const Place& place, int query, int key) const {
    return query < place.length && key < place.length
               ? dropped_.keep[(place.line + query) * s.words_a_line() + key / k_keep_bits]
               : 0U;
  }

  const Dropped& dropped_;
  int in_group_;
  int group_;
  unsigned words_[C::k_strips][k_words];
};
static_assert(k_keep_bits == k_step);

/// Walks a block over tokens [begin, end) tile by tile: copy(first token, stage) starts copying a
/// tile into one of two stages, work(first token, stage) uses it while the next tile is copied.
template <typename C, typename Copy, typename Work>
__device__ void walk_tiles(int begin, int end, const Copy& copy, const Work& work) {
  int stage = 0;
  if (begin < end) {
    copy(begin, stage);
  }
  for (int token = begin; token < end; token += C::k_tile, stage ^= 1) {
    wait_for_copies();
    __syncthreads();
    if (token + C::k_tile < end) {
      copy(token + C::k_tile, stage ^ 1);
    }
    work(token, stage);
  }
}

/// Walks a block over the keys that its queries see, and their values.
template <typename C>
class KeyWalk {
 public:
  /// `room`: shared memory of two stages of two tiles.
  __device__ KeyWalk(const AttentionShape& s, const Place& place, const Heads<const Bf16Value*>& of,
                     Bf16Value* room)
      : keys_(head(place, of.key, of.stride)), values_(head(place, of.value, of.stride)),
        room_(room), end_(keys_up_to(s, place, place.first + C::k_lines - 1)),
        warp_end_(keys_up_to(s, place, place.warp_first + C::k_rows - 1)),
        all_see_(keys_up_to(s, place, place.warp_first)) {}

  /// Calls work(first key, keys) for each chunk that the warp's queries see; its values lie
  /// C::k_tile_values after its keys.
  template <typename Work>
  __device__ void each_chunk(const Work& work) const {
    const auto copy = [&](int key0, int stage) {
      Bf16Value* const to = room_ + 2 * stage * C::k_tile_values;
      copy_tile<C>(keys_, key0, to);
      copy_tile<C>(values_, key0, to + C::k_tile_values);
    };
    walk_tiles<C>(0, end_, copy, [&](int tile0, int stage) {
      for (int key0 = tile0; key0 < tile0 + C::k_tile && key0 < warp_end_; key0 += C::k_chunk) {
        work(key0, room_ + 2 * stage * C::k_tile_values + (key0 - tile0) * C::k_pitch);
      }
    });
  }
  /// Whether each of the warp's queries sees all keys of the chunk.
  __device__ bool all_see(int key0) const { return key0 + C::k_chunk <= all_see_; }

 private:
  Head<const Bf16Value> keys_;
  Head<const Bf16Value> values_;
  Bf16Value* room_;
  int end_;      ///< End of the keys that any query of the block sees,
  int warp_end_; ///< that any query of the warp sees,
  int all_see_;  ///< and that all queries of the warp see.
};

} // namespace
} // namespace trainer
