#include "trainer/device/cpu/bf16_products.h"

#include <algorithm>

#include "trainer/device/cpu/matmul.h"

namespace trainer {
namespace {

constexpr std::size_t k_most_k = 256;   ///< Two panels of so many are half of a first cache.
constexpr std::size_t k_two_panels = 2; ///< That a strip takes at once.

std::size_t pairs_of(std::size_t k) { return (k + 1) / 2; }

std::size_t panel_step(const Gemm& g) { return g.b_panel == 0 ? g.k * k_panel : g.b_panel; }

Bf16Pair* pairs_for(Room room, std::size_t count) {
  return reinterpret_cast<Bf16Pair*>(room_for(room, count));
}

} // namespace

void gemm_by_bf16(const Gemm& g) {
  static const Bf16Instructions& cpu = *avx512_bf16();
  for (std::size_t k0 = 0; k0 < g.k; k0 += k_most_k) {
    const std::size_t k = std::min(k_most_k, g.k - k0);
    const std::size_t pairs = pairs_of(k);
    Bf16Pair* const a = pairs_for(Room::bf16_a, g.m * pairs);
    Bf16Pair* const b = pairs_for(Room::bf16_b, k_two_panels * pairs * k_panel);
    const bool by_columns = g.a_row == 1 && g.a_column != 1;
    if (by_columns) {
      cpu.pack_columns(k, g.m, g.a + k0 * g.a_column, g.a_column, a);
    } else {
      cpu.pack_rows(g.m, k, g.a + k0, g.a_row, a);
    }
    for (std::size_t panel = 0; panel < g.panels; panel += k_two_panels) {
      const std::size_t panels = std::min(k_two_panels, g.panels - panel);
      for (std::size_t i = 0; i < panels; ++i) {
        const float* const from = g.b + (panel + i) * panel_step(g);
        Bf16Pair* const to = b + i * pairs * k_panel;
        if (g.b_is_turned) {
          cpu.pack_turned(k, from + k0, g.b_row, to);
        } else {
          cpu.pack_columns(k, k_panel, from + k0 * g.b_row, g.b_row, to);
        }
      }
      cpu.multiply({.m = g.m,
                    .pairs = pairs,
                    .a = a,
                    .a_row = by_columns ? 1 : pairs,
                    .a_pair = by_columns ? g.m : 1,
                    .b = b,
                    .panels = panels,
                    .c = g.c + panel * g.c_panel,
                    .c_row = g.c_row,
                    .c_panel = g.c_panel,
                    .accumulate = g.accumulate || k0 > 0});
    }
  }
}

} // namespace trainer
