// A block owns lines of one head (queries; in backward also keys) in strips of 16, and walks over
// the other side tile by tile, copying the next tile to shared memory meanwhile. Backward is two
// kernels, one for the gradients of queries, one for those of keys and values; both recompute the
// probabilities: 9 products of 2·B·T²·H FLOP for forward and backward where 7 would do, but no sum
// depends on the order of blocks. Letters as in text_kernels.h.
#include "trainer/device/cuda/flash_tiles.cuh"

namespace trainer {
namespace {

// A thread has 255 registers: as deep as 128, it keeps half as many rows, or scores.
template <int Depth>
using ForwardCut =
    std::conditional_t<Depth == 128, Cut<128, 1, 4, 64, 64, 2>, Cut<Depth, 2, 4, 64, 64>>;
template <int Depth>
using QueriesCut = Cut<Depth, 1, 4, 32, 32, Depth == 128 ? 2 : 3>;
template <int Depth>
using KeysCut =
    std::conditional_t<Depth == 128, Cut<128, 1, 4, 32, 16, 2>, Cut<Depth, 1, 4, 32, 32, 3>>;

/// `scale` applies to exponents of base 2. `lse` (B, A, T): log2 of each line's softmax
/// denominator.
template <typename C>
__global__ void __launch_bounds__(C::k_threads, C::k_blocks)
    flash_forward(AttentionShape s, const std::int32_t* lengths, Dropped dropped, float scale,
                  Heads<const Bf16Value*> of, float* lse, Bf16Value* context) {
  DYNAMIC_SHARED(Bf16Value, room);
  const Place place = place_of<C, true>(s, lengths);
  typename C::Factors queries;
  load_factors<C>(head(place, of.query, of.stride), place, queries);
  float largest[C::k_strips][2];
  float sum[C::k_strips][2];
  each_row<C>([&](int strip, int half) {
    largest[strip][half] = -INFINITY;
    sum[strip][half] = 0;
  });
  typename C::Out out = {};
  const KeyWalk<C> walk(s, place, of, room);
  walk.each_chunk([&](int key0, const Bf16Value* keys) {
    typename C::Scores p = {};
    add_by_rows<C>(queries, keys, place, p);
    if (!walk.all_see(key0)) {
      hide<C, true>(s, place, key0, p);
    }
    each_row<C>([&](int strip, int half) {
      float most = largest[strip][half];
      DTRAIN_UNROLL
      for (int j = 0; j < C::k_chunk / 8; ++j) {
        most = fmaxf(most, fmaxf(p[strip][j][2 * half], p[strip][j][2 * half + 1]));
      }
      most = group_largest(most); // Never -∞: every query sees key 0.
      const float shrink = power_of_two((largest[strip][half] - most) * scale);
      largest[strip][half] = most;
      const float shift = most * scale;
      float more = 0;
      DTRAIN_UNROLL
      for (int j = 0; j < C::k_chunk / 8; ++j) {
        DTRAIN_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          p[strip][j][i] = power_of_two(p[strip][j][i] * scale - shift);
          more += p[strip][j][i];
        }
      }
      sum[strip][half] = sum[strip][half] * shrink + more;
      DTRAIN_UNROLL
      for (int j = 0; j < C::k_depth / 8; ++j) {
        out[strip][j][2 * half] *= shrink;
        out[strip][j][2 * half + 1] *= shrink;
      }
    });
    if (dropped.keep != nullptr) {
      const DropFactors<C, true> factors(s, place, dropped, key0);
      each_score<C>([&](int strip, int j, int i) { p[strip][j][i] *= factors.of(strip, j, i); });
    }
    add_along_rows<C>(p, keys + C::k_tile_values, place, out);
  });
  float share[C::k_strips][2];
  each_row<C>([&](int strip, int half) {
    const float all = group_sum(sum[strip][half]);
    share[strip][half] = 1 / all;
    const int query = place.row(strip, half);
    if (place.in_group == 0 && query < place.length) {
      lse[place.line + query] = largest[strip][half] * scale + log2f(all);
    }
  });
  store<C>(out, share, place, head(place, context, s.width()));
}

/// For each of a warp's rows, the dot product of its output and its gradient `changes`.
template <typename C>
__device__ void inner_products(const Head<const Bf16Value>& context,
                               const typename C::Factors& changes, const Place& place,
                               float (&inner)[C::k_strips][2]) {
  typename C::Factors given;
  load_factors<C>(context, place, given);
  const auto product = [](std::uint32_t x, std::uint32_t y) {
    return bits_float(x << 16) * bits_float(y << 16) +
           bits_float(x & 0xffff0000U) * bits_float(y & 0xffff0000U);
  };
  each_row<C>([&](int strip, int half) {
    float sum = 0;
    DTRAIN_UNROLL
    for (int step = 0; step < C::k_depth / k_step; ++step) {
      const auto& x = given[strip][step];
      const auto& y = changes[strip][step];
      sum += product(x[half], y[half]) + product(x[half + 2], y[half + 2]);
    }
    inner[strip][half] = group_sum(sum);
  });
}

/// inner (B, A, T): each line's dot product of output and gradient, for flash_keys().
template <typename C>
__global__ void __launch_bounds__(C::k_threads, C::k_blocks)
    flash_queries(AttentionShape s, const std::int32_t* lengths, Dropped dropped, float scale,
                  Heads<const Bf16Value*> of, const Bf16Value* context, const Bf16Value* dcontext,
                  const float* lse, float* inner, Heads<Bf16Value*> changes) {
  DYNAMIC_SHARED(Bf16Value, room);
  const Place place = place_of<C, true>(s, lengths);
  typename C::Factors queries;
  typename C::Factors dout;
  load_factors<C>(head(place, of.query, of.stride), place, queries);
  load_factors<C>(head(place, dcontext, s.width()), place, dout);
  float its_lse[C::k_strips][2];
  float its_inner[C::k_strips][2];
  inner_products<C>(head(place, context, s.width()), dout, place, its_inner);
  each_row<C>([&](int strip, int half) {
    const int query = place.row(strip, half);
    const bool is_there = query < place.length;
    its_lse[strip][half] = is_there ? lse[place.line + query] : 0;
    if (is_there && place.in_group == 0) {
      inner[place.line + query] = its_inner[strip][half];
    }
  });
  typename C::Out out = {};
  const KeyWalk<C> walk(s, place, of, room);
  walk.each_chunk([&](int key0, const Bf16Value* keys) {
    typename C::Scores p = {};
    typename C::Scores dp = {};
    add_by_rows<C>(queries, keys, place, p);
    add_by_rows<C>(dout, keys + C::k_tile_values, place, dp);
    if (!walk.all_see(key0)) {
      hide<C, true>(s, place, key0, p);
    }
    const auto finish = [&](const auto& factor) {
      each_score<C>([&](int strip, int j, int i) {
        float& score = p[strip][j][i];
        score = power_of_two(score * scale - its_lse[strip][i / 2]) *
                (dp[strip][j][i] * factor(strip, j, i) - its_inner[strip][i / 2]);
      });
    };
    if (dropped.keep == nullptr) {
      finish([](int, int, int) { return 1.0F; });
    } else {
      const DropFactors<C, true> factors(s, place, dropped, key0);
      finish([&](int strip, int j, int i) { return factors.of(strip, j, i); });
    }
    add_along_rows<C>(p, keys, place, out);
  });
  float by[C::k_strips][2];
  DTRAIN_UNROLL
  for (int strip = 0; strip < C::k_strips; ++strip) {
    by[strip][0] = by[strip][1] = scale / k_log2_e;
  }
  store<C>(out, by, place, head(place, changes.query, changes.stride));
}

/// Keys are the rows of its products, queries are the columns.
template <typename C>
__global__ void __launch_bounds__(C::k_threads, C::k_blocks)
    flash_keys(AttentionShape s, const std::int32_t* lengths, Dropped dropped, float scale,
               Heads<const Bf16Value*> of, const Bf16Value* dcontext, const float* lse,
               const float* inner, Heads<Bf16Value*> changes) {
  DYNAMIC_SHARED(Bf16Value, room);
  float* const lines = reinterpret_cast<float*>(room + 4 * C::k_tile_values);
  const Place place = place_of<C, false>(s, lengths);
  typename C::Factors keys;
  typename C::Factors values;
  load_factors<C>(head(place, of.key, of.stride), place, keys);
  load_factors<C>(head(place, of.value, of.stride), place, values);
  typename C::Out out_keys = {};
  typename C::Out out_values = {};
  const int begin = place.first >= place.keys ? place.length
                    : s.is_causal             ? place.first / C::k_tile * C::k_tile
                                              : 0;
  const auto copy = [&](int query0, int stage) {
    copy_tile<C>(head(place, of.query, of.stride), query0, room + 2 * stage * C::k_tile_values);
    copy_tile<C>(head(place, dcontext, s.width()), query0,
                 room + (2 * stage + 1) * C::k_tile_values);
    const int own = static_cast<int>(threadIdx.x);
    if (own < 2 * C::k_tile) {
      const int query = query0 + own % C::k_tile;
      const bool is_there = query < place.length;
      copy_behind<4>((own < C::k_tile ? lse : inner) + place.line + (is_there ? query : 0),
                     lines + 2 * stage * C::k_tile + own, is_there);
    }
  };
  walk_tiles<C>(begin, place.length, copy, [&](int tile0, int stage) {
    if (place.warp_first >= place.keys) {
      return; // The whole warp returns.
    }
    for (int in_tile = 0; in_tile < C::k_tile; in_tile += C::k_chunk) {
      const int query0 = tile0 + in_tile;
      if (s.is_causal && query0 + C::k_chunk <= place.warp_first) {
        continue;
      }
      const Bf16Value* const queries = room + 2 * stage * C::k_tile_values + in_tile * C::k_pitch;
      const float* const its_lse = lines + 2 * stage * C::k_tile + in_tile + 2 * place.in_group;
      const float* const its_inner = its_lse + C::k_tile;
      typename C::Scores p = {};
      typename C::Scores ds = {};
      add_by_rows<C>(keys, queries, place, p);
      add_by_rows<C>(values, queries + C::k_tile_values, place, ds);
      if (place.warp_first + C::k_rows > place.keys ||
          (s.is_causal && query0 < place.warp_first + C::k_rows - 1)) {
        hide<C, false>(s, place, query0, p);
      }
      const auto finish = [&](const auto& factor) {
        DTRAIN_UNROLL
        for (int j = 0; j < C::k_chunk / 8; ++j) {
          const float2 lse2 = *reinterpret_cast<const float2*>(its_lse + j * 8);
          const float2 inner2 = *reinterpret_cast<const float2*>(its_inner + j * 8);
          DTRAIN_UNROLL
          for (int strip = 0; strip < C::k_strips; ++strip) {
            DTRAIN_UNROLL
            for (int i = 0; i < 4; ++i) {
              const float by = factor(strip, j, i);
              const float its =
                  power_of_two(p[strip][j][i] * scale - (i % 2 == 0 ? lse2.x : lse2.y));
              p[strip][j][i] = its * by;
              ds[strip][j][i] = its * (ds[strip][j][i] * by - (i % 2 == 0 ? inner2.x : inner2.y));
            }
          }
        }
      };
      if (dropped.keep == nullptr) {
        finish([](int, int, int) { return 1.0F; });
      } else {
        const DropFactors<C, false> factors(s, place, dropped, query0);
        finish([&](int strip, int j, int i) { return factors.of(strip, j, i); });
      }
      add_along_rows<C>(p, queries + C::k_tile_values, place, out_values);
      add_along_rows<C>(ds, queries, place, out_keys);
    }
  });
  float by[C::k_strips][2];
  float one[C::k_strips][2];
  DTRAIN_UNROLL
  for (int strip = 0; strip < C::k_strips; ++strip) {
    by[strip][0] = by[strip][1] = scale / k_log2_e;
    one[strip][0] = one[strip][1] = 1;
  }
  store<C>(out_keys, by, place, head(place, changes.key, changes.stride));
  store<C>(out_values, one, place, head(place, changes.value, changes.stride));
}

float power_scale(const AttentionShape& s) { return k_log2_e / sqrtf(static_cast<float>(s.depth)); }

/// Bytes of two stages of two tiles, with so many floats per token beside them.
template <typename C>
constexpr std::size_t room_of(int floats = 0) {
  return 4 * C::k_tile_values * sizeof(Bf16Value) + 2 * floats * C::k_tile * sizeof(float);
}

template <typename C>
unsigned blocks_of(const AttentionShape& s) {
  return static_cast<unsigned>(s.rows * s.heads * ((s.length + C::k_lines - 1) / C::k_lines));
}

template <int Depth>
int put_forward(const CudaStreamHandle* stream, const AttentionShape& s,
                const std::int32_t* lengths, const Dropped& dropped,
                const Heads<const Bf16Value*>& of, float* lse, Bf16Value* context) {
  using C = ForwardCut<Depth>;
  return launch(flash_forward<C>, blocks_of<C>(s), C::k_threads, room_of<C>(), stream, s, lengths,
                dropped, power_scale(s), of, lse, context);
}

template <int Depth>
int put_backward(const CudaStreamHandle* stream, const AttentionShape& s,
                 const std::int32_t* lengths, const Dropped& dropped,
                 const Heads<const Bf16Value*>& of, const float* lse, const Bf16Value* context,
                 const Bf16Value* dcontext, float* inner, const Heads<Bf16Value*>& changes) {
  using Queries = QueriesCut<Depth>;
  using Keys = KeysCut<Depth>;
  const int error = launch(flash_queries<Queries>, blocks_of<Queries>(s), Queries::k_threads,
                           room_of<Queries>(), stream, s, lengths, dropped, power_scale(s), of,
                           context, dcontext, lse, inner, changes);
  return error != 0 ? error
                    : launch(flash_keys<Keys>, blocks_of<Keys>(s), Keys::k_threads,
                             room_of<Keys>(2), stream, s, lengths, dropped, power_scale(s), of,
                             dcontext, lse, inner, changes);
}

/// Calls act with the depth of heads, of those that is_flash() knows, to launch the kernels for it.
template <typename Act>
int by_depth(std::size_t depth, const Act& act) {
  switch (depth) {
  case 32:
    return act(std::integral_constant<int, 32>{});
  case 64:
    return act(std::integral_constant<int, 64>{});
  default:
    return act(std::integral_constant<int, 128>{});
  }
}

} // namespace

bool is_flash(const CudaStreamHandle* stream, const AttentionShape& s) {
  return stream->multiplies_in == DType::bf16 && (s.depth == 32 || s.depth == 64 || s.depth == 128);
}

int put_flash_attention(const CudaStreamHandle* stream, const AttentionShape& s,
                        const std::int32_t* lengths, const Dropped& dropped,
                        const Heads<ConstTypedPointer>& of, float* p, const TypedPointer& context) {
  return by_depth(s.depth, [&](auto depth) {
    return put_forward<depth>(stream, s, lengths, dropped, heads_of<const Bf16Value>(of, s.width()),
                              p, context.as<Bf16Value>());
  });
}

int put_flash_backward(const CudaStreamHandle* stream, const AttentionShape& s,
                       const std::int32_t* lengths, const Dropped& dropped,
                       const Heads<ConstTypedPointer>& of, const float* p,
                       const ConstTypedPointer& context, const ConstTypedPointer& dcontext,
                       float* room, const Heads<TypedPointer>& changes) {
  return by_depth(s.depth, [&](auto depth) {
    return put_backward<depth>(stream, s, lengths, dropped,
                               heads_of<const Bf16Value>(of, s.width()), p, context.as<Bf16Value>(),
                               dcontext.as<Bf16Value>(), room,
                               heads_of<Bf16Value>(changes, s.width()));
  });
}

} // namespace trainer
