// A block has 128 queries of a head, or in backward 128 keys, 16 a warp, and goes over the others a
// tile at a time. Backward is two kernels, one of the queries' gradients and one of the keys' and
// values', each of which computes the probabilities by itself: 9 products of 2·B·T²·H FLOP for
// forward and backward where 7 would do, but none is added in whatever order blocks come. Letters
// as text_kernels.h has them.
#include "trainer/device/cuda/flash_tiles.cuh"

namespace trainer {
namespace {

constexpr float k_log2_e = 1.44269504F; ///< Exponentials are powers of two.
constexpr int k_forward_tile = 64;      ///< Keys,
constexpr int k_backward_tile = 32;     ///< and in backward keys or queries.

/// `scale`: of the powers of two. `lse` (B, A, T): the logarithm, to base 2, of what a line's
/// probabilities are divided by.
template <int Depth>
__global__ void __launch_bounds__(k_threads)
    flash_forward(AttentionShape s, const std::int32_t* lengths, Dropped dropped, float scale,
                  Heads<const Bf16Value*> of, float* lse, Bf16Value* context) {
  constexpr int k_tile = k_forward_tile;
  DYNAMIC_SHARED(std::uint32_t, room);
  std::uint32_t* const keys = room;
  std::uint32_t* const values = room + k_tile * k_row_words<Depth>;
  const Place place = place_of(s, lengths);
  FactorA queries[Depth / k_step];
  load_factors<Depth>(strip(s, place, of.query), place, queries);
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  Sums out[Depth / 8] = {};
  const auto put = [&](const auto& tile_keys, const auto& tile_values) {
    tile_keys.put_rows(keys);
    tile_values.put_pairs(values);
  };
  walk_keys<Depth, k_tile>(s, place, of, put, [&](int key0) {
    Sums p[k_tile / 8] = {};
    add_by_rows<Depth, k_tile>(queries, keys, place, p);
    if (key0 + k_tile > keys_up_to(s, place, place.warp_first)) {
      hide<true, k_tile>(s, place, key0, p);
    }
    DTRAIN_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
      DTRAIN_UNROLL
      for (int j = 0; j < k_tile / 8; ++j) {
        most = fmaxf(most, fmaxf(p[j][2 * half], p[j][2 * half + 1]));
      }
      most = group_largest(most); // Of key 0 at least, which all see.
      const float shrink = exp2f((largest[half] - most) * scale);
      largest[half] = most;
      float more = 0;
      DTRAIN_UNROLL
      for (int j = 0; j < k_tile / 8; ++j) {
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          p[j][i] = exp2f((p[j][i] - most) * scale);
          more += p[j][i];
        }
      }
      sum[half] = sum[half] * shrink + more;
      DTRAIN_UNROLL
      for (int j = 0; j < Depth / 8; ++j) {
        out[j][2 * half] *= shrink;
        out[j][2 * half + 1] *= shrink;
      }
      if (dropped.keep != nullptr) {
        const int query = place.warp_first + place.group + half * 8;
        DTRAIN_UNROLL
        for (int j = 0; j < k_tile / 8; ++j) {
          for (int i = 0; i < 2; ++i) {
            const int key = key0 + j * 8 + 2 * place.in_group + i;
            p[j][2 * half + i] *= factor_of(s, place, dropped, query, key);
          }
        }
      }
    }
    add_by_pairs<Depth, k_tile>(p, values, place, out);
  });
  float share[2];
  for (int half = 0; half < 2; ++half) {
    const float all = group_sum(sum[half]);
    share[half] = 1 / all;
    const int query = place.warp_first + place.group + half * 8;
    if (place.in_group == 0 && query < place.length) {
      lse[place.line + query] = largest[half] * scale + log2f(all);
    }
  }
  store<Depth>(out, share, place, strip(s, place, context));
}

/// inner (B, A, T): of each line the product of what it gave and its change. Depth / 4 lanes a
/// line.
template <int Depth>
__global__ void flash_inner(AttentionShape s, const Bf16Value* context, const Bf16Value* dcontext,
                            float* inner) {
  constexpr unsigned k_lanes = Depth / 4;
  const std::size_t i = first_item();
  const std::size_t line = i / k_lanes; // As they lie in (N, H).
  float sum = 0;
  if (line < s.lines()) {
    const float4 x = widen_four(context + i * 4);
    const float4 y = widen_four(dcontext + i * 4);
    sum = x.x * y.x + x.y * y.y + (x.z * y.z + x.w * y.w);
  }
  for (int other = k_lanes / 2; other > 0; other /= 2) {
    sum += __shfl_xor_sync(k_all_lanes, sum, other);
  }
  if (line < s.lines() && i % k_lanes == 0) {
    const std::size_t token = line / s.heads;
    inner[(token / s.length * s.heads + line % s.heads) * s.length + token % s.length] = sum;
  }
}

template <int Depth>
__global__ void __launch_bounds__(k_threads)
    flash_queries(AttentionShape s, const std::int32_t* lengths, Dropped dropped, float scale,
                  Heads<const Bf16Value*> of, const Bf16Value* dcontext, const float* lse,
                  const float* inner, Bf16Value* dqueries) {
  constexpr int k_tile = k_backward_tile;
  DYNAMIC_SHARED(std::uint32_t, room);
  std::uint32_t* const key_rows = room;
  std::uint32_t* const value_rows = key_rows + k_tile * k_row_words<Depth>;
  std::uint32_t* const key_pairs = value_rows + k_tile * k_row_words<Depth>;
  const Place place = place_of(s, lengths);
  FactorA queries[Depth / k_step];
  FactorA changes[Depth / k_step];
  load_factors<Depth>(strip(s, place, of.query), place, queries);
  load_factors<Depth>(strip(s, place, dcontext), place, changes);
  float its_lse[2];
  float its_inner[2];
  for (int half = 0; half < 2; ++half) {
    const int query = place.warp_first + place.group + half * 8;
    its_lse[half] = query < place.length ? lse[place.line + query] : INFINITY;
    its_inner[half] = query < place.length ? inner[place.line + query] : 0;
  }
  Sums out[Depth / 8] = {};
  const auto put = [&](const auto& tile_keys, const auto& tile_values) {
    tile_keys.put_rows(key_rows);
    tile_keys.put_pairs(key_pairs);
    tile_values.put_rows(value_rows);
  };
  walk_keys<Depth, k_tile>(s, place, of, put, [&](int key0) {
    Sums products[k_tile / 8] = {};
    Sums dp[k_tile / 8] = {};
    add_by_rows<Depth, k_tile>(queries, key_rows, place, products);
    add_by_rows<Depth, k_tile>(changes, value_rows, place, dp);
    if (key0 + k_tile > keys_up_to(s, place, place.warp_first)) {
      hide<true, k_tile>(s, place, key0, products);
    }
    DTRAIN_UNROLL
    for (int j = 0; j < k_tile / 8; ++j) {
      DTRAIN_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (dropped.keep != nullptr) {
          dp[j][i] *= factor_of(s, place, dropped, place.warp_first + place.group + i / 2 * 8,
                                key0 + j * 8 + 2 * place.in_group + i % 2);
        }
        products[j][i] =
            exp2f(products[j][i] * scale - its_lse[i / 2]) * (dp[j][i] - its_inner[i / 2]);
      }
    }
    add_by_pairs<Depth, k_tile>(products, key_pairs, place, out);
  });
  const float by = scale / k_log2_e;
  store<Depth>(out, {by, by}, place, strip(s, place, dqueries));
}

/// Keys are the rows of its products, queries the columns.
template <int Depth>
__global__ void __launch_bounds__(k_threads)
    flash_keys(AttentionShape s, const std::int32_t* lengths, Dropped dropped, float scale,
               Heads<const Bf16Value*> of, const Bf16Value* dcontext, const float* lse,
               const float* inner, Bf16Value* dkeys, Bf16Value* dvalues) {
  constexpr int k_tile = k_backward_tile;
  DYNAMIC_SHARED(std::uint32_t, room);
  std::uint32_t* const query_rows = room;
  std::uint32_t* const change_rows = query_rows + k_tile * k_row_words<Depth>;
  std::uint32_t* const query_pairs = change_rows + k_tile * k_row_words<Depth>;
  std::uint32_t* const change_pairs = query_pairs + k_tile / 2 * k_pair_words<Depth>;
  float* const tile_lse = reinterpret_cast<float*>(change_pairs + k_tile / 2 * k_pair_words<Depth>);
  float* const tile_inner = tile_lse + k_tile;
  const Place place = place_of(s, lengths);
  FactorA keys[Depth / k_step];
  FactorA values[Depth / k_step];
  load_factors<Depth>(strip(s, place, of.key), place, keys);
  load_factors<Depth>(strip(s, place, of.value), place, values);
  Sums out_keys[Depth / 8] = {};
  Sums out_values[Depth / 8] = {};
  const int begin = place.first >= place.keys ? place.length : s.is_causal ? place.first : 0;
  Fetched<Depth, k_tile> next_queries;
  Fetched<Depth, k_tile> next_changes;
  float next_lse = 0;
  float next_inner = 0;
  const auto fetch = [&](int query0) {
    next_queries.fetch(strip(s, place, of.query), query0);
    next_changes.fetch(strip(s, place, dcontext), query0);
    if (threadIdx.x < k_tile) {
      const int query = query0 + static_cast<int>(threadIdx.x);
      next_lse = query < place.length ? lse[place.line + query] : INFINITY;
      next_inner = query < place.length ? inner[place.line + query] : 0;
    }
  };
  fetch(begin);
  for (int query0 = begin; query0 < place.length; query0 += k_tile) {
    __syncthreads();
    next_queries.put_rows(query_rows);
    next_queries.put_pairs(query_pairs);
    next_changes.put_rows(change_rows);
    next_changes.put_pairs(change_pairs);
    if (threadIdx.x < k_tile) {
      tile_lse[threadIdx.x] = next_lse;
      tile_inner[threadIdx.x] = next_inner;
    }
    __syncthreads();
    if (query0 + k_tile < place.length) {
      fetch(query0 + k_tile);
    }
    if (place.warp_first >= place.keys || (s.is_causal && query0 + k_tile <= place.warp_first)) {
      continue; // All of the warp.
    }
    Sums p[k_tile / 8] = {};
    Sums ds[k_tile / 8] = {};
    add_by_rows<Depth, k_tile>(keys, query_rows, place, p);
    add_by_rows<Depth, k_tile>(values, change_rows, place, ds);
    if (place.warp_first + k_step > place.keys ||
        (s.is_causal && query0 < place.warp_first + k_step - 1)) {
      hide<false, k_tile>(s, place, query0, p);
    }
    DTRAIN_UNROLL
    for (int j = 0; j < k_tile / 8; ++j) {
      DTRAIN_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int in_tile = j * 8 + 2 * place.in_group + i % 2;
        float factor = 1;
        if (dropped.keep != nullptr) {
          factor = factor_of(s, place, dropped, query0 + in_tile,
                             place.warp_first + place.group + i / 2 * 8);
        }
        const float its = exp2f(p[j][i] * scale - tile_lse[in_tile]);
        p[j][i] = its * factor;
        ds[j][i] = its * (ds[j][i] * factor - tile_inner[in_tile]);
      }
    }
    add_by_pairs<Depth, k_tile>(p, change_pairs, place, out_values);
    add_by_pairs<Depth, k_tile>(ds, query_pairs, place, out_keys);
  }
  const float by = scale / k_log2_e;
  store<Depth>(out_keys, {by, by}, place, strip(s, place, dkeys));
  store<Depth>(out_values, {1, 1}, place, strip(s, place, dvalues));
}

float power_scale(const AttentionShape& s) { return k_log2_e / sqrtf(static_cast<float>(s.depth)); }

unsigned blocks_of(const AttentionShape& s) {
  return static_cast<unsigned>(s.rows * s.heads * ((s.length + k_lines - 1) / k_lines));
}

Heads<const Bf16Value*> halves_of(const Heads<ConstTypedPointer>& of) {
  return {of.query.as<Bf16Value>(), of.key.as<Bf16Value>(), of.value.as<Bf16Value>()};
}

template <int Depth>
int put_forward(const CudaStreamHandle* stream, const AttentionShape& s,
                const std::int32_t* lengths, const Dropped& dropped,
                const Heads<ConstTypedPointer>& of, float* lse, const TypedPointer& context) {
  constexpr std::size_t k_room =
      k_forward_tile * k_row_words<Depth> * 4 + k_forward_tile / 2 * k_pair_words<Depth> * 4;
  return launch(flash_forward<Depth>, blocks_of(s), k_threads, k_room, stream, s, lengths, dropped,
                power_scale(s), halves_of(of), lse, context.as<Bf16Value>());
}

template <int Depth>
int put_backward(const CudaStreamHandle* stream, const AttentionShape& s,
                 const std::int32_t* lengths, const Dropped& dropped,
                 const Heads<ConstTypedPointer>& typed, const float* lse,
                 const ConstTypedPointer& context, const ConstTypedPointer& dcontext, float* inner,
                 const Heads<TypedPointer>& changes) {
  constexpr std::size_t k_rows = k_backward_tile * k_row_words<Depth> * 4;
  constexpr std::size_t k_pairs = k_backward_tile / 2 * k_pair_words<Depth> * 4;
  const std::size_t threads = s.lines() * (Depth / 4);
  const Heads<const Bf16Value*> of = halves_of(typed);
  const auto* const changed = dcontext.as<Bf16Value>();
  int error =
      launch(flash_inner<Depth>, static_cast<unsigned>((threads + k_threads - 1) / k_threads),
             k_threads, 0, stream, s, context.as<Bf16Value>(), changed, inner);
  if (error == 0) {
    error = launch(flash_queries<Depth>, blocks_of(s), k_threads, 2 * k_rows + k_pairs, stream, s,
                   lengths, dropped, power_scale(s), of, changed, lse, inner,
                   changes.query.as<Bf16Value>());
  }
  return error != 0 ? error
                    : launch(flash_keys<Depth>, blocks_of(s), k_threads,
                             2 * k_rows + 2 * k_pairs + 2 * k_backward_tile * sizeof(float), stream,
                             s, lengths, dropped, power_scale(s), of, changed, lse, inner,
                             changes.key.as<Bf16Value>(), changes.value.as<Bf16Value>());
}

} // namespace

bool is_flash(const CudaStreamHandle* stream, const AttentionShape& s) {
  return stream->multiplies_in == DType::bf16 && (s.depth == 32 || s.depth == 64);
}

int put_flash_attention(const CudaStreamHandle* stream, const AttentionShape& s,
                        const std::int32_t* lengths, const Dropped& dropped,
                        const Heads<ConstTypedPointer>& of, float* p, const TypedPointer& context) {
  return (s.depth == 32 ? put_forward<32> : put_forward<64>)(stream, s, lengths, dropped, of, p,
                                                             context);
}

int put_flash_backward(const CudaStreamHandle* stream, const AttentionShape& s,
                       const std::int32_t* lengths, const Dropped& dropped,
                       const Heads<ConstTypedPointer>& of, const float* p,
                       const ConstTypedPointer& context, const ConstTypedPointer& dcontext,
                       float* room, const Heads<TypedPointer>& changes) {
  return (s.depth == 32 ? put_backward<32> : put_backward<64>)(stream, s, lengths, dropped, of, p,
                                                               context, dcontext, room, changes);
}

} // namespace trainer
