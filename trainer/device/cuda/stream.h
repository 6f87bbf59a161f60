// A stream, with the scratch memory and settings that kernels and libraries use on it.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "trainer/device/buffer.h"
#include "trainer/device/matmul.h"

namespace trainer {

class Narrowed;
class Workspace;

struct CudaStreamHandle {
  int gpu = 0;
  cudaStream_t stream = nullptr;
  /// GPU memory for the partial sums of a kernel's blocks, which the last block or the next kernel
  /// adds up,
  double* partial = nullptr;
  unsigned* arrived = nullptr;      ///< and the number of blocks that are done: 0 between kernels.
  std::size_t most_shared = 0;      ///< Most bytes of shared memory of a block.
  std::size_t multiprocessors = 0;  ///< Number of the GPU's multiprocessors.
  DType multiplies_in = DType::f32; ///< Device::multiply_in()
  /// Device::set_matmul_precision()
  MatmulPrecision matmul_precision = MatmulPrecision::highest;
  bool is_tf32() const { return matmul_precision == MatmulPrecision::high; }
  Workspace* workspace = nullptr; ///< Of the library's products (matmul.h),
  Narrowed* narrowed = nullptr;   ///< and a cache of their rounded operands.
};
/// Doubles, 8 MiB: norm_backward leaves two sums per column, for 1024 columns of about 1000 blocks.
inline constexpr std::size_t k_cuda_partials = std::size_t{1} << 20;
inline constexpr std::size_t k_cuda_arrivals = 1024;

} // namespace trainer
