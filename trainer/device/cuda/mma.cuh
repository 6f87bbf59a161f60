// A warp's product of small matrices by tensor cores: bf16 in, sums in float32 (PTX ISA,
// mma.m16n8k16).
//
// Of D (16, 8) += A (16, 16) · B (16, 8) lane 4·g + t has, two values of bf16 in a word, the lower
// one first:
//
//   a   rows g and g + 8 at steps 2t, 2t+1, then both rows at steps 2t+8, 2t+9
//   b   column g at steps 2t, 2t+1, then at steps 2t+8, 2t+9
//   d   row g at columns 2t, 2t+1, then row g + 8
//
// So what two products beside each other leave, 16 columns, is the A of the next, once packed.
#pragma once

#include <cstdint>

#ifdef DTRAIN_CUDA_ON_CPU
#include "tests/cuda_on_cpu/mma.h"
#endif

namespace trainer {
namespace {

using Sums = float[4];
using FactorA = std::uint32_t[4];

#ifndef DTRAIN_CUDA_ON_CPU
__device__ inline std::uint32_t pack_bf16(float first, float second) {
  std::uint32_t both = 0;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

__device__ inline void add_mma(Sums& d, const FactorA& a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

/// 16 columns of sums as the A of a product along them.
__device__ inline void pack_sums(const Sums& left, const Sums& right, FactorA& a) {
  a[0] = pack_bf16(left[0], left[1]);
  a[1] = pack_bf16(left[2], left[3]);
  a[2] = pack_bf16(right[0], right[1]);
  a[3] = pack_bf16(right[2], right[3]);
}

} // namespace
} // namespace trainer
