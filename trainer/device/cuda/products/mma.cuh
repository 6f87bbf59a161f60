// A warp's product of small matrices with tensor cores: bf16 operands, float32 sums (PTX ISA,
// mma.m16n8k16), and the loads of its operands: from global to shared memory asynchronously
// (cp.async), and from there to registers, four squares of 8 × 8 in one instruction (ldmatrix).
//
// In D (16, 8) += A (16, 16) · B (16, 8) lane 4·g + t holds, two values of bf16 per word, the lower
// one first:
//
//   a   rows g and g + 8 at steps 2t, 2t+1, then both rows at steps 2t+8, 2t+9
//   b   column g at steps 2t, 2t+1, then at steps 2t+8, 2t+9
//   d   row g at columns 2t, 2t+1, then row g + 8
//
// So the sums of two neighbouring products, 16 columns, are operand A of the next, once packed.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef DTRAIN_CUDA_ON_CPU
#include "tests/cuda_on_cpu/mma.h"
#endif

namespace trainer {
namespace {

constexpr float k_log2_e = 1.44269504F; ///< exp(x) = 2^(x · log2 e)

using Sums = float[4];
using FactorA = std::uint32_t[4];
using Squares = std::uint32_t[4]; ///< Two values of each of four squares.

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

/// D (16, 8) += A (16, 8) · B (8, 8), values rounded to TF32: of A rows g and g + 8 at step t, then
/// both at step t + 4; of B column g at steps t and t + 4.
__device__ inline void add_tf32_mma(Sums& d, const float (&a)[4], float b0, float b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
__device__ inline float round_to_tf32(float value) {
  std::uint32_t rounded = 0;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
  return __uint_as_float(rounded);
}

/// The 32-bit address of a pointer to shared memory.
__device__ inline std::uint32_t shared_address(const void* memory) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}

/// Lane 8·i + r gives the address of row r of square i, aligned to 16 bytes. Lane 4·g + t gets
/// columns 2t, 2t+1 of row g of each square; transposed: rows 2t, 2t+1 of column g.
__device__ inline void load_squares(const void* row, Squares& to) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_turned_squares(const void* row, Squares& to) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Copies 16 or 4 bytes, or zeros, from global to shared memory; done after wait_for_copies().
template <int Bytes>
__device__ void copy_behind(const void* from, void* to, bool is_there) {
  const int bytes = is_there ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "n"(Bytes), "r"(bytes)
                 : "memory");
  }
}
/// Waits for the copies of this thread.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// 2^x to about 22 bits; 0 below 2^-126.
__device__ inline float power_of_two(float x) {
  float power = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
/// 1 / x to about 22 bits.
__device__ inline float reciprocal(float x) {
  float inverse = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
#endif

/// Packs 16 columns of sums as operand A of a product along them.
__device__ inline void pack_sums(const Sums& left, const Sums& right, FactorA& a) {
  a[0] = pack_bf16(left[0], left[1]);
  a[1] = pack_bf16(left[2], left[3]);
  a[2] = pack_bf16(right[0], right[1]);
  a[3] = pack_bf16(right[2], right[3]);
}

} // namespace
} // namespace trainer
