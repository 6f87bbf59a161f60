#include "trainer/device/cpu/matmul.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "trainer/device/buffer.h"
#include "trainer/device/cpu/cpu_device.h"

namespace trainer {
namespace {

// What a product reads repeatedly stays in the L2 cache: the rows of A (whole tiles of 6 and 12)
// times this many columns are 144 KiB, beside a strip of B.
constexpr std::size_t k_cut_rows = 144;
constexpr std::size_t k_cut_k = 256;
constexpr std::size_t k_strip = 512; ///< Columns of a strip: 512 KiB with its rows.
/// Larger for bf16, whose copies are split along k and are made of all of B each time.
constexpr std::size_t k_cut_rows_bf16 = 1536;

/// B's rows [first_k, first_k + k) of a part's columns → panels (columns / 16, k, 16), filled up
/// with zeros.
void pack(const CpuKernels& kernels, const Matmul& s, const MatmulPart& part, std::size_t first_k,
          std::size_t count, float* to) {
  const float* const b = s.b.as<float>();
  if (s.b_is_turned) {
    kernels.parts.pack_transposed({part.columns, count, s.b_row},
                                  b + part.column * s.b_row + first_k, to);
  } else {
    kernels.parts.pack({count, part.columns, s.b_row}, b + first_k * s.b_row + part.column, to);
  }
}

constexpr std::size_t k_aliased = 1024; ///< Floats: rows as far apart share a set of the L1 cache.
constexpr std::size_t k_copied_for = 128; ///< Columns of B that a copy of A is worth.

/// Whether tiles would read A faster from a copy: the rows of a tile evict each other from the L1
/// cache, and so do those of k in a turned A, each in a page of its own.
bool is_worth_a_copy(const Matmul& s, std::size_t columns) {
  const bool is_slow = s.a_is_turned ? s.a_row > k_cut_rows : s.a_row % k_aliased == 0;
  return is_slow && columns >= k_copied_for;
}

/// This part of A, row-major, its rows no longer aliased.
void copy_part(const CpuKernels& kernels, Gemm& part) {
  const std::size_t stride = padded(part.k) + k_panel;
  float* const copy = room_for(Room::part_of_a, part.m * stride);
  if (part.a_row == 1) {
    kernels.parts.turn({part.k, part.m, part.a_column}, part.a, copy, stride);
  } else {
    for (std::size_t i = 0; i < part.m; ++i) {
      std::memcpy(copy + i * stride, part.a + i * part.a_row, part.k * sizeof(float));
    }
  }
  part.a = copy;
  part.a_row = stride;
  part.a_column = 1;
}

/// A strip of float32, with the rows split; in C, or beside it where the last panel is not whole.
void multiply_strip(const CpuKernels& kernels, const Matmul& s, const MatmulPart& strip,
                    Gemm gemm) {
  gemm.b_row = k_panel;
  const bool copies_a = is_worth_a_copy(s, strip.columns);
  const bool sums_rows = s.epilogue == Matmul::Epilogue::bias_gradient && strip.column == 0;
  for (std::size_t k = 0; k < s.k; k += k_cut_k) {
    gemm.k = std::min(k_cut_k, s.k - k);
    gemm.b_panel = gemm.k * k_panel;
    float* const b = room_for(Room::strip, gemm.panels * gemm.b_panel);
    pack(kernels, s, strip, k, gemm.k, b);
    gemm.b = b;
    for (std::size_t row = 0, parts = (s.m + k_cut_rows - 1) / k_cut_rows; parts > 0; --parts) {
      Gemm cut = gemm;
      cut.m = (s.m - row + parts - 1) / parts;
      cut.a += row * gemm.a_row + k * gemm.a_column;
      cut.c += row * gemm.c_row;
      cut.accumulate = gemm.accumulate || k > 0;
      if (sums_rows) { // While this part of A is in the cache.
        kernels.parts.sum_rows({cut.k, cut.m, s.a_row}, cut.a, s.accumulate || k > 0,
                               s.beside.as<float>() + row);
      }
      if (copies_a) {
        copy_part(kernels, cut);
      }
      kernels.gemm(cut);
      if (k + gemm.k == s.k && gemm.c == s.c.as<float>() + strip.column) {
        kernels.parts.finish(s, {row, cut.m, strip.column, strip.columns});
      }
      row += cut.m;
    }
  }
}

/// The same in bf16, whose gemm makes its own copies, panel by panel.
void multiply_strip_bf16(const CpuKernels& kernels, const Matmul& s, const MatmulPart& strip,
                         Gemm gemm) {
  const bool is_whole = gemm.c == s.c.as<float>() + strip.column;
  if (s.epilogue == Matmul::Epilogue::bias_gradient && strip.column == 0) {
    kernels.parts.sum_rows({s.k, s.m, s.a_row}, s.a.as<float>(), s.accumulate,
                           s.beside.as<float>());
  }
  gemm.b = s.b.as<float>() + strip.column * (s.b_is_turned ? s.b_row : 1);
  gemm.b_row = s.b_row;
  gemm.b_panel = s.b_is_turned ? k_panel * s.b_row : k_panel;
  gemm.b_is_turned = s.b_is_turned;
  if (!is_whole || (s.b_is_turned && !kernels.has_bf16)) {
    float* const b = room_for(Room::strip, gemm.panels * s.k * k_panel);
    pack(kernels, s, strip, 0, s.k, b);
    gemm.b = b;
    gemm.b_row = k_panel;
    gemm.b_panel = s.k * k_panel;
    gemm.b_is_turned = false;
  }
  for (std::size_t row = 0; row < s.m; row += k_cut_rows_bf16) {
    Gemm cut = gemm;
    cut.m = std::min(k_cut_rows_bf16, s.m - row);
    cut.a += row * gemm.a_row;
    cut.c += row * gemm.c_row;
    kernels.gemm_bf16(cut);
    if (is_whole) {
      kernels.parts.finish(s, {row, cut.m, strip.column, strip.columns});
    }
  }
}

/// Implements Matmul::one().
void multiply_one(const CpuKernels& kernels, const Matmul& s) {
  const bool is_bf16 = s.is_rounded && kernels.product == kernels.gemm_bf16;
  const std::size_t most = is_bf16 && kernels.has_bf16 ? s.n : k_strip;
  MatmulPart strip{0, s.m, 0, 0};
  for (; strip.column < s.n; strip.column += strip.columns) {
    const std::size_t rest = s.n - strip.column; // The columns that fill no whole panel come last.
    const std::size_t column = strip.column;
    strip.columns = rest < k_panel ? rest : std::min(most, rest) / k_panel * k_panel;
    const std::size_t width = padded(strip.columns);
    const bool is_whole = strip.columns == width;
    float* const rows = is_whole ? nullptr : room_for(Room::rows, s.m * width);
    const Gemm gemm = {.m = s.m,
                       .k = s.k,
                       .panels = width / k_panel,
                       .a = s.a.as<float>(),
                       .a_row = s.a_is_turned ? 1 : s.a_row,
                       .a_column = s.a_is_turned ? s.a_row : 1,
                       .c = is_whole ? s.c.as<float>() + column : rows,
                       .c_row = is_whole ? s.c_row : width,
                       .c_panel = k_panel,
                       .accumulate = is_whole && s.accumulate};
    (is_bf16 ? multiply_strip_bf16 : multiply_strip)(kernels, s, strip, gemm);
    for (std::size_t row = 0; !is_whole && row < s.m; ++row) {
      float* const to = s.c.as<float>() + row * s.c_row + column;
      for (std::size_t j = 0; j < strip.columns; ++j) {
        to[j] = (s.accumulate ? to[j] : 0) + rows[row * width + j];
      }
    }
    if (!is_whole) {
      kernels.parts.finish(s, strip);
    }
  }
}

} // namespace

void multiply(const CpuKernels& kernels, const Matmul& matmul) {
  for (std::size_t i = 0; i < matmul.batch; ++i) {
    multiply_one(kernels, matmul.one(i));
  }
}

void cpu_matmul(Stream& stream, const Matmul& matmul) {
  multiply(CpuStream::kernels_of(stream), matmul);
}

float* room_for(Room room, std::size_t count) {
  static thread_local std::array<std::optional<Buffer>, static_cast<std::size_t>(Room::count)>
      rooms;
  std::optional<Buffer>& found = rooms.at(static_cast<std::size_t>(room));
  if (!found || found->size() < count) {
    found = Buffer::paged(count, DType::f32); // The size of a cache: not part of --plan-memory.
  }
  return found->data();
}

} // namespace trainer
