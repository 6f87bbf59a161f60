// A product in bf16 by one of float32, over vectors of V::k_lanes floats: rounded copies of both
// matrices, of each two neighbours in k the second one first (see bf16_products.h).
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include "trainer/device/cpu/bf16_products.h"
#include "trainer/device/cpu/flat.h"
#include "trainer/device/cpu/lanes.h"
#include "trainer/device/cpu/matmul.h"
#include "trainer/device/cpu/sixteen.h"

namespace trainer {
namespace {

/// Swaps each two neighbours.
template <typename V>
inline void store_swapped(float* to, typename V::Floats x) {
  using Pairs [[gnu::vector_size(V::k_lanes * sizeof(float))]] = std::uint64_t;
  constexpr int k_half = 32;
  Pairs pairs;
  __builtin_memcpy(&pairs, &x, sizeof x);
  pairs = pairs << k_half | pairs >> k_half;
  __builtin_memcpy(to, &pairs, sizeof x);
}

/// from (rows, width), rows `stride` apart → to, rows `to_stride` apart, up to whole vectors.
template <typename V>
inline void round_rows(std::size_t rows, std::size_t width, const float* from, std::size_t stride,
                       float* to, std::size_t to_stride) {
  for (std::size_t row = 0; row < rows; ++row, from += stride, to += to_stride) {
    for (std::size_t i = 0; i < width; i += V::k_lanes) {
      store_swapped<V>(to + i, nearest_bf16<V>(load_some<V>(from + i, width - i)));
    }
  }
}

/// from (k, columns), rows `stride` apart → to, rows `to_stride` apart, up to whole vectors; zeros
/// in the row before the last where k is odd.
template <typename V>
inline void round_columns(std::size_t k, std::size_t columns, const float* from, std::size_t stride,
                          float* to, std::size_t to_stride) {
  for (std::size_t i = 0; i < k + k % 2; ++i, to += to_stride) {
    const std::size_t row = i % 2 == 0 ? i + 1 : i - 1;
    for (std::size_t j = 0; j < columns; j += V::k_lanes) {
      V::store(to + j, row < k ? nearest_bf16<V>(load_some<V>(from + row * stride + j, columns - j))
                               : V::all(0));
    }
  }
}

/// Multiplies a block of rows and panels whose copies fit in the caches.
template <typename V, void (*Product)(const Gemm&)>
inline void bf16_part_by_float32(const Gemm& g) {
  Gemm part = g;
  part.k = g.k + g.k % 2;
  const bool by_columns = g.a_row == 1 && g.a_column != 1;
  const std::size_t stride = padded(by_columns ? g.m : part.k);
  float* const a = room_for(Room::bf16_a, (by_columns ? part.k : g.m) * stride);
  if (by_columns) {
    round_columns<V>(g.k, g.m, g.a, g.a_column, a, stride);
  } else {
    round_rows<V>(g.m, g.k, g.a, g.a_row, a, stride);
  }
  part.a = a;
  part.a_row = by_columns ? 1 : stride;
  part.a_column = by_columns ? stride : 1;
  part.b_row = k_panel;
  part.b_panel = 0;
  constexpr std::size_t k_room = 1 << 16; // Floats.
  // One more than k asks for: k is at least 1, but clang's analyser cannot know.
  const std::size_t most_panels = k_room / (part.k * k_panel + 1) + 1;
  for (std::size_t panel = 0; panel < g.panels; panel += most_panels) {
    part.panels = g.panels - panel < most_panels ? g.panels - panel : most_panels;
    float* const b = room_for(Room::bf16_b, part.panels * part.k * k_panel);
    for (std::size_t i = 0; i < part.panels; ++i) {
      round_columns<V>(g.k, k_panel, g.b + (panel + i) * flat::b_panel(g), g.b_row,
                       b + i * part.k * k_panel, k_panel);
    }
    part.b = b;
    part.c = g.c + panel * g.c_panel;
    Product(part);
  }
}

template <typename V, void (*Product)(const Gemm&)>
void bf16_by_float32(const Gemm& g) {
  constexpr std::size_t k_rows = 144; // Whole tiles of 6 and 12.
  for (std::size_t row = 0; row < g.m; row += k_rows) {
    Gemm part = g;
    part.m = g.m - row < k_rows ? g.m - row : k_rows;
    part.a = g.a + row * g.a_row;
    part.c = g.c + row * g.c_row;
    bf16_part_by_float32<V, Product>(part);
  }
}

} // namespace
} // namespace trainer
