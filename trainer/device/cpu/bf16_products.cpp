#include "trainer/device/cpu/bf16_products.h"

#include <algorithm>

#include "trainer/device/cpu/matmul.h"

namespace trainer {
namespace {

constexpr std::size_t k_most_k = 256; ///< Two panels with this many rows fill half of the L1 cache.
constexpr std::size_t k_two_panels = 2; ///< Panels that a strip processes together.

std::size_t panel_step(const Gemm& g) { return g.b_panel == 0 ? g.k * k_panel : g.b_panel; }

Bf16Pair* pairs_for(Room room, std::size_t count) {
  return reinterpret_cast<Bf16Pair*>(room_for(room, count));
}

void gemm_by(const Bf16Instructions& cpu, const Gemm& g) {
  for (std::size_t k0 = 0; k0 < g.k; k0 += k_most_k) {
    const std::size_t k = std::min(k_most_k, g.k - k0);
    const std::size_t pairs =
        ((k + 1) / 2 + cpu.pairs_at_once - 1) / cpu.pairs_at_once * cpu.pairs_at_once;
    const Bf16Depth depth{k, pairs};
    Bf16Pair* const a = pairs_for(Room::bf16_a, g.m * pairs);
    Bf16Pair* const b = pairs_for(Room::bf16_b, k_two_panels * pairs * k_panel);
    const bool is_turned = g.a_row == 1 && g.a_column != 1;
    if (is_turned) {
      cpu.pack_turned_rows(depth, g.m, g.a + k0 * g.a_column, g.a_column, a);
    } else {
      cpu.pack_rows(g.m, depth, g.a + k0, g.a_row, a);
    }
    const bool stays_turned = is_turned && cpu.takes_turned_rows;
    for (std::size_t panel = 0; panel < g.panels; panel += k_two_panels) {
      const std::size_t panels = std::min(k_two_panels, g.panels - panel);
      for (std::size_t i = 0; i < panels; ++i) {
        const float* const from = g.b + (panel + i) * panel_step(g);
        Bf16Pair* const to = b + i * pairs * k_panel;
        if (g.b_is_turned) {
          cpu.pack_turned(depth, from + k0, g.b_row, to);
        } else {
          cpu.pack_columns(depth, k_panel, from + k0 * g.b_row, g.b_row, to);
        }
      }
      cpu.multiply({.m = g.m,
                    .pairs = pairs,
                    .a = a,
                    .a_row = stays_turned ? 1 : pairs,
                    .a_pair = stays_turned ? g.m : 1,
                    .b = b,
                    .panels = panels,
                    .c = g.c + panel * g.c_panel,
                    .c_row = g.c_row,
                    .c_panel = g.c_panel,
                    .accumulate = g.accumulate || k0 > 0});
    }
  }
}

} // namespace

void gemm_by_avx512_bf16(const Gemm& gemm) { gemm_by(*avx512_bf16(), gemm); }
void gemm_by_amx_bf16(const Gemm& gemm) { gemm_by(*amx_bf16(), gemm); }

} // namespace trainer
