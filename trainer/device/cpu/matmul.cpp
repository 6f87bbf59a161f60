#include "trainer/device/cpu/matmul.h"

#include <algorithm>

#include "trainer/device/cpu/bf16_products.h"

namespace trainer {
namespace {

constexpr std::size_t k_cut_rows = 144;    ///< Whole tiles of 6 and 12 rows,
constexpr std::size_t k_cut_columns = 256; ///< that with so many columns are 144 KiB.
constexpr std::size_t k_strip = 1 << 17;   ///< Floats of B's.

/// `columns` of B from `column` on → panels (columns / 16, k, 16), filled up with zeros.
void pack(const MatmulKernels& kernels, const Matmul& s, const MatmulPart& part, float* to) {
  if (s.b_is_turned) {
    kernels.pack_transposed({part.columns, s.k, s.b_row}, s.b + part.column * s.b_row, to);
    return;
  }
  for (std::size_t column = 0; column < part.columns; column += k_panel) {
    const std::size_t count = std::min(k_panel, part.columns - column);
    const float* from = s.b + part.column + column;
    for (std::size_t k = 0; k < s.k; ++k, from += s.b_row, to += k_panel) {
      std::fill(std::copy_n(from, count, to), to + k_panel, 0.0F);
    }
  }
}

/// Of Matmul::one().
void multiply_one(const MatmulKernels& kernels, const Matmul& s) {
  const std::size_t panels = padded(s.n) / k_panel;
  const std::size_t step = std::max<std::size_t>(k_strip / (s.k * k_panel) / 2 * 2, 2);
  for (std::size_t panel = 0; panel < panels; panel += step) {
    const std::size_t count = std::min(step, panels - panel);
    const std::size_t width = count * k_panel;
    const std::size_t column = panel * k_panel;
    const MatmulPart part{column, std::min(width, s.n - column)};
    const bool is_whole = part.columns == width;
    float* const b = product_room(0, width * s.k);
    float* const rows = is_whole ? nullptr : product_room(1, s.m * width);
    pack(kernels, s, part, b);
    gemm_in_cuts(kernels.gemm, {.m = s.m,
                                .k = s.k,
                                .panels = count,
                                .a = s.a,
                                .a_row = s.a_is_turned ? 1 : s.a_row,
                                .a_column = s.a_is_turned ? s.a_row : 1,
                                .b = b,
                                .c = is_whole ? s.c + column : rows,
                                .c_row = is_whole ? s.c_row : width,
                                .c_panel = k_panel,
                                .accumulate = is_whole && s.accumulate});
    for (std::size_t row = 0; !is_whole && row < s.m; ++row) {
      float* const to = s.c + row * s.c_row + column;
      for (std::size_t j = 0; j < part.columns; ++j) {
        to[j] = (s.accumulate ? to[j] : 0) + rows[row * width + j];
      }
    }
    kernels.finish(s, part);
  }
  if (s.epilogue == Matmul::Epilogue::bias_gradient) {
    kernels.sum_rows({s.k, s.m, s.a_row}, s.a, s.accumulate, s.beside);
  }
}

} // namespace

void gemm_in_cuts(void (*product)(const Gemm&), const Gemm& gemm) {
  const std::size_t b_panel = gemm.b_panel == 0 ? gemm.k * k_panel : gemm.b_panel;
  for (std::size_t row = 0; row < gemm.m; row += k_cut_rows) {
    for (std::size_t k = 0; k < gemm.k; k += k_cut_columns) {
      Gemm cut = gemm;
      cut.m = std::min(k_cut_rows, gemm.m - row);
      cut.k = std::min(k_cut_columns, gemm.k - k);
      cut.a += row * gemm.a_row + k * gemm.a_column;
      cut.b += k * gemm.b_row;
      cut.b_panel = b_panel;
      cut.c += row * gemm.c_row;
      cut.accumulate = gemm.accumulate || k > 0;
      product(cut);
    }
  }
}

void multiply(const MatmulKernels& kernels, const Matmul& matmul) {
  for (std::size_t i = 0; i < matmul.batch; ++i) {
    multiply_one(kernels, matmul.one(i));
  }
}

} // namespace trainer
