// Matrix products in bf16: every value of A and B is rounded to it, products are exact, and sums
// are float32.
//
// VDPBF16PS adds the two products of a pair of neighbours in k to a sum, the second one first, each
// with one rounding as a fused multiply-add has it and with denormals as 0. So float32's own
// multiply-add over rounded values in that order gives the same bits: machines with the instruction
// and without train alike. (Intel's "BFLOAT16 – Hardware Numerics Definition", 2018, and the
// operation in the Software Developer's Manual.)
//
// AMX's TDPBF16PS, which multiplies some eight times as fast, adds otherwise: of 16 pairs the first
// values' products and the second values' are a sum each, from 0 on, which are added to each other
// and then to what is there. Ranks with it train with their like (CpuKernels::bf16_arithmetic).
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

/// How many values follow each other along k, and how many pairs they become, the rest zeros.
struct Bf16Depth {
  std::size_t k;
  std::size_t pairs;
};

struct Bf16Instructions {
  std::size_t pairs_at_once; ///< The number of pairs must be a multiple of this.
  bool takes_turned_rows; ///< A's transpose as (pairs, rows); otherwise all of A is (rows, pairs).
  /// A: from (rows, k), rows `stride` apart → to (rows, pairs)
  void (*pack_rows)(std::size_t rows, const Bf16Depth& depth, const float* from, std::size_t stride,
                    Bf16Pair* to);
  /// A's transpose, from (k, rows) → to as takes_turned_rows says
  void (*pack_turned_rows)(const Bf16Depth& depth, std::size_t rows, const float* from,
                           std::size_t stride, Bf16Pair* to);
  /// B: from (k, columns), rows `stride` apart → to (pairs, columns)
  void (*pack_columns)(const Bf16Depth& depth, std::size_t columns, const float* from,
                       std::size_t stride, Bf16Pair* to);
  /// B's transpose, from (16, k) → to (pairs, 16)
  void (*pack_turned)(const Bf16Depth& depth, const float* from, std::size_t stride, Bf16Pair* to);
  void (*multiply)(const Bf16Strip& strip);
};

/// Null where this machine or this build has none.
const Bf16Instructions* avx512_bf16();
const Bf16Instructions* amx_bf16();

/// Products by these instructions.
void gemm_by_avx512_bf16(const Gemm& gemm);
void gemm_by_amx_bf16(const Gemm& gemm);

} // namespace trainer
