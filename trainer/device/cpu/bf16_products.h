// Matrix products in bf16: every value of A and B is rounded to it, products are exact, and sums
// are float32.
//
// VDPBF16PS adds the two products of a pair of neighbours in k to a sum, the second one first, each
// with one rounding as a fused multiply-add has it and with denormals as 0. So float32's own
// multiply-add over rounded values in that order gives the same bits: machines with the instruction
// and without train alike. (Intel's "BFLOAT16 – Hardware Numerics Definition", 2018, and the
// operation in the Software Developer's Manual.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/cpu/kernels.h"

namespace trainer {

/// Two values of bf16, neighbours in k: the first in the low half.
using Bf16Pair = std::uint32_t;

/// A part of a product: C (m, 16 or 32) (+)= A (m, pairs) · B (pairs, 16 or twice that).
struct Bf16Strip {
  std::size_t m;
  std::size_t pairs;
  const Bf16Pair* a; ///< a[row * a_row + pair * a_pair]
  std::size_t a_row;
  std::size_t a_pair;
  const Bf16Pair* b;  ///< (panels, pairs, 16)
  std::size_t panels; ///< 1 or 2
  float* c;           ///< c[panel * c_panel + row * c_row + 0…15]
  std::size_t c_row;
  std::size_t c_panel;
  bool accumulate;
};

/// In what follows k may be odd: the last pair's second value is 0.
struct Bf16Instructions {
  /// from (rows, k), rows `stride` apart → to (rows, pairs)
  void (*pack_rows)(std::size_t rows, std::size_t k, const float* from, std::size_t stride,
                    Bf16Pair* to);
  /// from (k, columns), rows `stride` apart → to (pairs, columns)
  void (*pack_columns)(std::size_t k, std::size_t columns, const float* from, std::size_t stride,
                       Bf16Pair* to);
  /// from (16, k), rows `stride` apart → to (pairs, 16)
  void (*pack_turned)(std::size_t k, const float* from, std::size_t stride, Bf16Pair* to);
  void (*multiply)(const Bf16Strip& strip);
};

/// Null where this machine or this build has none.
const Bf16Instructions* avx512_bf16();

/// A product by these instructions.
void gemm_by_bf16(const Gemm& gemm);

} // namespace trainer
