// The kernels over vectors of V::k_lanes floats, where each set of instructions that has fused
// multiply-add is a V. All sets add in the same order, so they give the same bits.
//
// A product's tile is as many rows of C as registers hold, by two vectors: AVX2's are the halves of
// a panel, AVX-512's two panels, where there are two. A step along k takes two loads of B, and of A
// an element a row, for two multiply-adds a row: with 6 rows the sixteen registers of AVX2, with 12
// the thirty-two of AVX-512 keep both multipliers busy, not the loads.
//
// Files that include this are compiled for instructions that not every machine has: nothing here
// calls an inline function of a library, which would end up in code that others share.
#pragma once

#include "trainer/device/cpu/bf16_by_float32.h"
#include "trainer/device/cpu/convolution.h"
#include "trainer/device/cpu/epilogues.h"
#include "trainer/device/cpu/flat.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/device/cpu/lanes.h"
#include "trainer/device/cpu/matmul.h"
#include "trainer/device/cpu/plain_layers.h"
#include "trainer/device/cpu/vector_text.h"

namespace trainer {
namespace {

constexpr std::size_t k_strided_k_block = 64; // Rows of a transposed A that stay in L1 and L2.

struct Tile {
  std::size_t k;
  const float* a;
  std::size_t a_row;
  std::size_t a_column;
  const float* b;
  std::size_t b_row;
  std::size_t b_vector; ///< From a vector of B to the next one in the same row,
  float* c;
  std::size_t c_row;
  std::size_t c_vector; ///< and of C.
};

template <std::size_t I>
struct Index {
  static constexpr std::size_t value = I;
};

/// Calls `act` with Index<0> to Index<N - 1>: an array that is indexed with these alone lies in
/// registers, where one that a loop indexes lies on the stack until the loop is unrolled.
template <std::size_t N, std::size_t I = 0, typename Act>
[[gnu::always_inline]] inline void each_index(const Act& act) {
  if constexpr (I < N) {
    act(Index<I>{});
    each_index<N, I + 1>(act);
  }
}

template <typename V, std::size_t Rows, std::size_t Vectors>
inline void multiply_tile(const Tile& t, bool accumulate) {
  typename V::Floats sum[Rows * Vectors];
  const auto at = [&](std::size_t i, std::size_t j) { return t.c + i * t.c_row + j * t.c_vector; };
  if (accumulate) {
    each_index<Rows * Vectors>(
        [&]<std::size_t I>(Index<I>) { sum[I] = V::load(at(I / Vectors, I % Vectors)); });
  } else {
    each_index<Rows * Vectors>([&]<std::size_t I>(Index<I>) { sum[I] = V::all(0); });
  }
  for (std::size_t i = 0; i < Rows; ++i) { // The next tile's part of C arrives meanwhile.
    for (std::size_t j = 0; j < Vectors; ++j) {
      __builtin_prefetch(at(Rows + i, j), 1);
    }
  }
  const float* a[(Rows + 3) / 4]; // Every fourth row: the others are within an address's reach.
  each_index<(Rows + 3) / 4>([&]<std::size_t I>(Index<I>) { a[I] = t.a + 4 * I * t.a_row; });
  const float* b = t.b;
  for (std::size_t k = 0; k < t.k; ++k) {
    typename V::Floats right[Vectors];
    each_index<Vectors>([&]<std::size_t J>(Index<J>) { right[J] = V::load(b + J * t.b_vector); });
    each_index<Rows>([&]<std::size_t I>(Index<I>) {
      const auto left = V::all(a[I / 4][I % 4 * t.a_row]);
      each_index<Vectors>([&]<std::size_t J>(Index<J>) {
        sum[I * Vectors + J] = left * right[J] + sum[I * Vectors + J];
      });
    });
    each_index<(Rows + 3) / 4>([&]<std::size_t I>(Index<I>) { a[I] += t.a_column; });
    b += t.b_row;
  }
  each_index<Rows * Vectors>(
      [&]<std::size_t I>(Index<I>) { V::store(at(I / Vectors, I % Vectors), sum[I]); });
}

/// Of at most so many rows.
template <typename V, std::size_t Rows, std::size_t Vectors>
inline void multiply_few(std::size_t rows, const Tile& t, bool accumulate) {
  if constexpr (Rows > 0) {
    if (rows == Rows) {
      multiply_tile<V, Rows, Vectors>(t, accumulate);
    } else {
      multiply_few<V, Rows - 1, Vectors>(rows, t, accumulate);
    }
  }
}

/// In tiles of about as many rows each: one of a row or two would wait for its own sums. They are
/// counted before the first, as a tile that waits for a division waits for longer than it adds.
template <typename V, std::size_t Vectors>
inline void multiply_rows(std::size_t rows, Tile t, bool accumulate) {
  const std::size_t tiles = (rows + V::k_tile_rows - 1) / V::k_tile_rows;
  const std::size_t least = tiles > 0 ? rows / tiles : 0;
  const std::size_t larger = rows - least * tiles; // Tiles of a row more, which come first.
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const std::size_t taken = least + (tile < larger ? 1 : 0);
    multiply_few<V, V::k_tile_rows, Vectors>(taken, t, accumulate);
    t.a += taken * t.a_row;
    t.c += taken * t.c_row;
  }
}

template <typename V>
void vector_gemm(const Gemm& g) {
  constexpr bool k_whole = V::k_lanes == k_panel; // A vector is a panel.
  constexpr std::size_t k_panels = k_whole ? 2 : 1;
  const std::size_t k_block = g.a_column == 1 ? g.k : k_strided_k_block;
  for (std::size_t k0 = 0; k0 < g.k; k0 += k_block) {
    const std::size_t k = g.k - k0 < k_block ? g.k - k0 : k_block;
    const bool accumulate = g.accumulate || k0 > 0;
    for (std::size_t panel = 0; panel < g.panels; panel += k_panels) {
      const Tile tile{k,
                      g.a + k0 * g.a_column,
                      g.a_row,
                      g.a_column,
                      g.b + panel * flat::b_panel(g) + k0 * g.b_row,
                      g.b_row,
                      k_whole ? flat::b_panel(g) : V::k_lanes,
                      g.c + panel * g.c_panel,
                      g.c_row,
                      k_whole ? g.c_panel : V::k_lanes};
      if (panel + k_panels > g.panels) {
        multiply_rows<V, 1>(g.m, tile, accumulate);
      } else {
        multiply_rows<V, 2>(g.m, tile, accumulate);
      }
    }
  }
}

// Widths here are whole panels, so no loop below has a remainder but the flat ones.

template <typename V>
void vector_bias_relu(std::size_t rows, std::size_t width, const float* bias, float* y) {
  const auto zero = V::all(0); // Not x > 0: a NaN stays one.
  for (std::size_t row = 0; row < rows; ++row, y += width) {
    for (std::size_t j = 0; j < width; j += V::k_lanes) {
      const auto x = V::load(y + j) + V::load(bias + j);
      V::store(y + j, zero > x ? zero : x);
    }
  }
}

template <typename V>
void vector_relu_backward(std::size_t rows, std::size_t width, const float* y, float* dy,
                          float* dbias) {
  constexpr std::size_t k_vectors = k_panel / V::k_lanes;
  const auto zero = V::all(0);
  for (std::size_t j = 0; j < width; j += k_panel) {
    typename V::Floats sum[k_vectors];
    for (auto& one : sum) {
      one = zero;
    }
    for (std::size_t row = 0; row < rows; ++row, dy += k_panel) {
      for (std::size_t v = 0; v < k_vectors; ++v) {
        const std::size_t at = v * V::k_lanes;
        const auto kept = V::load(y + row * width + j + at) > zero ? V::load(dy + at) : zero;
        V::store(dy + at, kept);
        sum[v] = sum[v] + kept;
      }
    }
    for (std::size_t v = 0; v < k_vectors; ++v) {
      float* to = dbias + j + v * V::k_lanes;
      V::store(to, V::load(to) + sum[v]);
    }
  }
}

// A batch has ten exponentials a sample against 400,000 FLOP: the plain loop is 0.5 % of a step.
inline Score plain_softmax(std::size_t rows, std::size_t classes, const std::int32_t* labels,
                           const float* bias, float scale, float* logits, float* dbias) {
  return portable_kernels().softmax_cross_entropy(rows, classes, labels, bias, scale, logits,
                                                  dbias);
}

/// All sets leave the same rest to the plain loops, which round otherwise.
inline std::size_t whole_panels(std::size_t n) { return n / k_panel * k_panel; }

template <typename V>
void vector_adam(Stream& stream, std::size_t n, const UpdateRule& a, const StepState* state,
                 const float* gradient, float* m, float* v, const Parameters& parameters) {
  if (is_skipped(*state)) {
    return;
  }
  float* const parameter = parameters.values;
  const auto factor = V::all(state->factor);
  const auto l2 = V::all(a.l2);
  const auto shrink = V::all(shrink_of(a, *state));
  const auto beta1 = V::all(a.beta1);
  const auto beta2 = V::all(a.beta2);
  const auto rest1 = V::all(1 - a.beta1);
  const auto rest2 = V::all(1 - a.beta2);
  const auto step = V::all(state->step_size);
  const auto correction = V::all(state->inverse_correction2);
  const auto epsilon = V::all(a.epsilon);
  std::size_t i = 0;
  for (; i < whole_panels(n); i += V::k_lanes) {
    const auto p = V::load(parameter + i);
    const auto g = l2 * p + factor * V::load(gradient + i);
    const auto m_new = beta1 * V::load(m + i) + rest1 * g;
    const auto v_new = beta2 * V::load(v + i) + rest2 * (g * g);
    const auto denominator = V::root(v_new) * correction + epsilon;
    const auto change = step * m_new / denominator;
    V::store(m + i, m_new);
    V::store(v + i, v_new);
    V::store(parameter + i, shrink * p - change);
  }
  flat::write_rounded(stream, i, parameters);
  portable_kernels().adam(stream, n - i, a, state, gradient + i, m + i, v + i,
                          flat::behind(i, parameters));
}

template <typename V>
void vector_bytes_to_floats(Stream& stream, std::size_t n, const std::uint8_t* from, float* to) {
  const auto scale = V::all(1.0F / 255.0F);
  std::size_t i = 0;
  for (; i < whole_panels(n); i += V::k_lanes) {
    V::store(to + i, V::floats_of(from + i) * scale);
  }
  portable_kernels().bytes_to_floats(stream, n - i, from + i, to + i);
}

template <typename V>
constexpr CpuKernels vector_kernels(const char* name) {
  return {{name,
           "fma",
           flat::begin,
           flat::prepare,
           flat::sgd,
           vector_adam<V>,
           flat::lamb_direction,
           flat::lamb_take,
           flat::muon_direction,
           flat::muon_take,
           flat::normalise,
           flat::blend,
           cpu_matmul,
           flat::squares,
           flat::sum,
           vector_bytes_to_floats<V>,
           plain_gather,
           plain_narrow,
           plain_widen,
           &k_plain_layers,
           &k_text_kernels<V>},
          vector_gemm<V>,
          bf16_by_float32<V, vector_gemm<V>>,
          vector_gemm<V>,
          vector_bias_relu<V>,
          vector_relu_backward<V>,
          plain_softmax,
          convolution_kernels<V>(),
          matmul_parts<V>(),
          attention_parts<V>()};
}

} // namespace
} // namespace trainer
