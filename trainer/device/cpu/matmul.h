// Matmul (device/matmul.h) by gemm: a strip of B's columns at a time goes into panels, as much of
// it as a core's second cache holds beside the rows of A that meet it. 2·m·n·k FLOP, for which n·k
// floats of B are copied once.
#pragma once

#include "trainer/device/cpu/kernels.h"

namespace trainer {

void multiply(const CpuKernels& kernels, const Matmul& matmul);
/// Multiplies with the kernels of the stream's device.
void cpu_matmul(Stream& stream, const Matmul& matmul);

/// Scratch memory of `count` floats, kept for the next call of this thread.
enum class Room : std::size_t {
  bf16_a, ///< A product's copies.
  bf16_b,
  strip,     ///< Matmul's copies, of B,
  part_of_a, ///< of A,
  rows,      ///< and of C.
  layer,     ///< Of what is made of products.
  layer2,
  count,
};
float* room_for(Room room, std::size_t count);

} // namespace trainer
