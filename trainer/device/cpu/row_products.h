// A product of row-major matrices by gemm: B goes into panels, and C comes out of them where its
// rows are not whole ones. 2·m·n·k FLOP, for which k·n floats of B are copied.
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include "trainer/device/cpu/bf16_products.h"
#include "trainer/device/cpu/kernels.h"

namespace trainer {
namespace {

template <void (*Product)(const Gemm&)>
void row_product(Stream& /*stream*/, const ProductShape& s, const float* a, const float* b,
                 float* c) {
  const std::size_t panels = padded(s.n) / k_panel;
  const bool is_whole = s.n % k_panel == 0;
  float* const b_panels = bf16_room(0, panels * s.k * k_panel);
  float* const rows = is_whole ? c : bf16_room(1, s.m * panels * k_panel);
  for (std::size_t panel = 0; panel < panels; ++panel) {
    for (std::size_t k = 0; k < s.k; ++k) {
      float* const to = b_panels + (panel * s.k + k) * k_panel;
      for (std::size_t j = 0; j < k_panel; ++j) {
        const std::size_t column = panel * k_panel + j;
        to[j] = column >= s.n ? 0 : s.b_is_turned ? b[column * s.k + k] : b[k * s.n + column];
      }
    }
  }
  Gemm g;
  g.m = s.m;
  g.k = s.k;
  g.panels = panels;
  g.a = a;
  g.a_row = s.a_is_turned ? 1 : s.k;
  g.a_column = s.a_is_turned ? s.m : 1;
  g.b = b_panels;
  g.c = rows;
  g.c_row = panels * k_panel;
  g.c_panel = k_panel;
  Product(g);
  for (std::size_t row = 0; !is_whole && row < s.m; ++row) {
    for (std::size_t column = 0; column < s.n; ++column) {
      c[row * s.n + column] = rows[row * panels * k_panel + column];
    }
  }
}

} // namespace
} // namespace trainer
