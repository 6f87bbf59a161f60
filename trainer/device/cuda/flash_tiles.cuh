// What attention by tensor cores is made of: tiles of queries, keys and values of 16 bits on their
// way from memory to products. Letters as text_kernels.h has them.
#pragma once

#include "trainer/device/cuda/dropped.cuh"
#include "trainer/device/cuda/flash_attention.h"
#include "trainer/device/cuda/mma.cuh"
#include "trainer/device/cuda/sums.cuh"

namespace trainer {
namespace {

constexpr int k_step = 16;                ///< Of a product, and the rows of a warp.
constexpr int k_lines = k_warps * k_step; ///< Of a block.

/// A head's part of (N, H): D values of each of T tokens.
template <typename Value>
struct Strip {
  Value* first;
  std::size_t stride;
  int length;

  __device__ Value* at(int token) const { return first + static_cast<std::size_t>(token) * stride; }
};

/// What a block is of.
struct Place {
  std::size_t line; ///< The first of its head, in (B, A, T).
  std::size_t at;   ///< Of its head in (N, H).
  int length;       ///< T
  int keys;         ///< That are seen by queries of this row.
  int first;        ///< Its own first query or key.
  int warp_first;   ///< That of this thread's warp.
  int group;        ///< Of four lanes, which have a row, and the one eight below it,
  int in_group;     ///< and which of them this thread is.
};

__device__ inline Place place_of(const AttentionShape& s, const std::int32_t* lengths) {
  const unsigned tiles = static_cast<unsigned>((s.length + k_lines - 1) / k_lines);
  const std::size_t matrix = blockIdx.x / tiles;
  const std::size_t row = matrix / s.heads;
  const int lane = static_cast<int>(threadIdx.x) % k_warp_lanes;
  const int first = static_cast<int>(blockIdx.x % tiles) * k_lines;
  const std::int32_t length = lengths[row];
  return {matrix * s.length,
          row * s.length * s.width() + matrix % s.heads * s.depth,
          static_cast<int>(s.length),
          length < 1 ? 1 : length,
          first,
          first + static_cast<int>(threadIdx.x) / k_warp_lanes * k_step,
          lane / 4,
          lane % 4};
}

template <typename Value>
__device__ Strip<Value> strip(const AttentionShape& s, const Place& place, Value* all) {
  return {all + place.at, s.width(), static_cast<int>(s.length)};
}

__device__ inline float4 widen_four(const Bf16Value* from) {
  const uint2 both = *reinterpret_cast<const uint2*>(from);
  return {bits_float(both.x << 16), bits_float(both.x & 0xffff0000U), bits_float(both.y << 16),
          bits_float(both.y & 0xffff0000U)};
}

template <typename Value>
__device__ float4 four(const Strip<Value>& from, int token, int column) {
  return token < from.length ? widen_four(from.at(token) + column) : float4{0, 0, 0, 0};
}

/// Words of a row of a tile in shared memory: no two lanes meet in a bank.
template <int Depth>
constexpr int k_row_words = Depth / 2 + 4;
template <int Depth>
constexpr int k_pair_words = Depth + 8;

/// A thread's part of a tile on its way from memory to shared memory: four values of two tokens
/// that follow each other, once or more.
template <int Depth, int Tile>
class Fetched {
 public:
  __device__ void fetch(const Strip<const Bf16Value>& from, int first) {
    each([&](int part, int pair, int four_columns) {
      of_[part][0] = four(from, first + 2 * pair, four_columns * 4);
      of_[part][1] = four(from, first + 2 * pair + 1, four_columns * 4);
    });
  }
  /// Neighbours within a row packed.
  __device__ void put_rows(std::uint32_t* to) const {
    each([&](int part, int pair, int four_columns) {
      for (int i = 0; i < 2; ++i) {
        const float4 x = of_[part][i];
        *reinterpret_cast<uint2*>(to + (2 * pair + i) * k_row_words<Depth> + four_columns * 2) =
            uint2{pack_bf16(x.x, x.y), pack_bf16(x.z, x.w)};
      }
    });
  }
  /// Neighbours within a column packed: of two tokens.
  __device__ void put_pairs(std::uint32_t* to) const {
    each([&](int part, int pair, int four_columns) {
      const float4 x = of_[part][0];
      const float4 y = of_[part][1];
      *reinterpret_cast<uint4*>(to + pair * k_pair_words<Depth> + four_columns * 4) =
          uint4{pack_bf16(x.x, y.x), pack_bf16(x.y, y.y), pack_bf16(x.z, y.z), pack_bf16(x.w, y.w)};
    });
  }

 private:
  static constexpr int k_fours = Depth / 4;
  static constexpr int k_all = Tile / 2 * k_fours;
  static constexpr int k_parts = (k_all + k_threads - 1) / k_threads;

  template <typename Act>
  __device__ static void each(const Act& act) {
    DTRAIN_UNROLL
    for (int part = 0; part < k_parts; ++part) {
      const int i = part * k_threads + static_cast<int>(threadIdx.x);
      if (i < k_all) {
        act(part, i / k_fours, i % k_fours);
      }
    }
  }

  float4 of_[k_parts][2];
};

/// A warp's 16 rows as the A of products along their depth.
template <int Depth>
__device__ void load_factors(const Strip<const Bf16Value>& from, const Place& place,
                             FactorA (&a)[Depth / k_step]) {
  for (int step = 0; step < Depth / k_step; ++step) {
    for (int word = 0; word < 4; ++word) {
      const int token = place.warp_first + place.group + word % 2 * 8;
      const int column = step * k_step + word / 2 * 8 + 2 * place.in_group;
      a[step][word] = token < from.length
                          ? *reinterpret_cast<const std::uint32_t*>(from.at(token) + column)
                          : 0U;
    }
  }
}

/// sums += a · rowsᵀ, along the depth.
template <int Depth, int Tile>
__device__ void add_by_rows(const FactorA (&a)[Depth / k_step], const std::uint32_t* rows,
                            const Place& place, Sums (&sums)[Tile / 8]) {
  DTRAIN_UNROLL
  for (int step = 0; step < Depth / k_step; ++step) {
    DTRAIN_UNROLL
    for (int j = 0; j < Tile / 8; ++j) {
      const std::uint32_t* const b =
          rows + (j * 8 + place.group) * k_row_words<Depth> + step * 8 + place.in_group;
      add_mma(sums[j], a[step], b[0], b[4]);
    }
  }
}

/// sums += a · pairs, along the tile, where `of_tile` has been packed of sums.
template <int Depth, int Tile>
__device__ void add_by_pairs(const Sums (&of_tile)[Tile / 8], const std::uint32_t* pairs,
                             const Place& place, Sums (&sums)[Depth / 8]) {
  DTRAIN_UNROLL
  for (int step = 0; step < Tile / k_step; ++step) {
    FactorA a;
    pack_sums(of_tile[2 * step], of_tile[2 * step + 1], a);
    DTRAIN_UNROLL
    for (int j = 0; j < Depth / 8; ++j) {
      const std::uint32_t* const b =
          pairs + (step * 8 + place.in_group) * k_pair_words<Depth> + j * 8 + place.group;
      add_mma(sums[j], a, b[0], b[4 * k_pair_words<Depth>]);
    }
  }
}

/// A warp's 16 rows, times `by`, of each half of them its own.
template <int Depth>
__device__ void store(const Sums (&sums)[Depth / 8], const float (&by)[2], const Place& place,
                      const Strip<Bf16Value>& to) {
  for (int half = 0; half < 2; ++half) {
    const int token = place.warp_first + place.group + half * 8;
    if (token < to.length) {
      DTRAIN_UNROLL
      for (int j = 0; j < Depth / 8; ++j) {
        *reinterpret_cast<std::uint32_t*>(to.at(token) + j * 8 + 2 * place.in_group) =
            pack_bf16(sums[j][2 * half] * by[half], sums[j][2 * half + 1] * by[half]);
      }
    }
  }
}

/// Over the four lanes that have a row.
__device__ inline float group_sum(float value) {
  value += __shfl_xor_sync(k_all_lanes, value, 1);
  return value + __shfl_xor_sync(k_all_lanes, value, 2);
}
__device__ inline float group_largest(float value) {
  value = fmaxf(value, __shfl_xor_sync(k_all_lanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(k_all_lanes, value, 2));
}

__device__ inline bool is_seen(const AttentionShape& s, const Place& place, int query, int key) {
  return key < place.keys && !(s.is_causal && key > query);
}

/// The keys that some query up to `last` sees.
__device__ inline int keys_up_to(const AttentionShape& s, const Place& place, int last) {
  return s.is_causal && last + 1 < place.keys ? last + 1 : place.keys;
}

/// Products of a query and a key that it does not see become those of no weight. `RowsAreQueries`:
/// the rows are queries and the columns keys, of which the first is `column0`; else the other way.
template <bool RowsAreQueries, int Tile>
__device__ void hide(const AttentionShape& s, const Place& place, int column0,
                     Sums (&products)[Tile / 8]) {
  DTRAIN_UNROLL
  for (int j = 0; j < Tile / 8; ++j) {
    DTRAIN_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = place.warp_first + place.group + i / 2 * 8;
      const int column = column0 + j * 8 + 2 * place.in_group + i % 2;
      const bool is_seen_here =
          is_seen(s, place, RowsAreQueries ? row : column, RowsAreQueries ? column : row);
      products[j][i] = is_seen_here ? products[j][i] : -INFINITY;
    }
  }
}

/// Of dropout, what a query's probability of a key is multiplied by.
__device__ inline float factor_of(const AttentionShape& s, const Place& place,
                                  const Dropped& dropped, int query, int key) {
  return query < place.length && key < place.length
             ? drop_factor(dropped, (place.line + query) * s.words_a_line(), key)
             : 0.0F;
}

/// Takes a block along the keys that its queries see, a tile at a time: put(keys, values) has the
/// tile in shared memory, of which work(first key) then makes something; the next one is under way
/// meanwhile. A warp whose queries see none of a tile does not work on it.
template <int Depth, int Tile, typename Put, typename Work>
__device__ void walk_keys(const AttentionShape& s, const Place& place,
                          const Heads<const Bf16Value*>& of, const Put& put, const Work& work) {
  const int last = keys_up_to(s, place, place.first + k_lines - 1);
  Fetched<Depth, Tile> keys;
  Fetched<Depth, Tile> values;
  const auto fetch = [&](int key0) {
    keys.fetch(strip(s, place, of.key), key0);
    values.fetch(strip(s, place, of.value), key0);
  };
  fetch(0);
  for (int key0 = 0; key0 < last; key0 += Tile) {
    __syncthreads();
    put(keys, values);
    __syncthreads();
    if (key0 + Tile < last) {
      fetch(key0 + Tile);
    }
    if (key0 < keys_up_to(s, place, place.warp_first + k_step - 1)) {
      work(key0);
    }
  }
}

} // namespace
} // namespace trainer
