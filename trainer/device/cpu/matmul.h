// Matmul (device/matmul.h) by gemm: a strip of B's columns at a time goes into panels, as much of
// it as a core's second cache holds beside the rows of A that meet it. 2·m·n·k FLOP, for which n·k
// floats of B are copied once.
#pragma once

#include "trainer/device/cpu/kernels.h"

namespace trainer {

/// A part of C.
struct MatmulPart {
  std::size_t column;
  std::size_t columns;
};

/// What a set of kernels has for it.
struct MatmulKernels {
  void (*gemm)(const Gemm& gemm);
  void (*pack_transposed)(const RowShape& shape, const float* from, float* to);
  /// The epilogue of these columns of C, which A · B is in.
  void (*finish)(const Matmul& matmul, const MatmulPart& part);
  /// to = the sum of from's rows, or +=; of any width.
  void (*sum_rows)(const RowShape& shape, const float* from, bool accumulate, float* to);
};

void multiply(const MatmulKernels& kernels, const Matmul& matmul);

/// A product cut so that what it reads again and again, rows of A by so many columns, stays in a
/// core's second cache.
void gemm_in_cuts(void (*product)(const Gemm&), const Gemm& gemm);

} // namespace trainer
