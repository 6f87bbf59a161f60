// A stream as the plug-in's kernels and libraries see it.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "trainer/device/buffer.h"

namespace trainer {

class Narrowed;

struct CudaStreamHandle {
  int gpu = 0;
  cudaStream_t stream = nullptr;
  /// Of the GPU's memory: what blocks of a kernel leave to be added up, by the last of them or by
  /// the next kernel,
  double* partial = nullptr;
  unsigned* arrived = nullptr; ///< and how many of them are done: 0 between kernels.
  void* workspace = nullptr;   ///< Likewise, of matrix products (matmul.h).
  std::size_t workspace_bytes = 0;
  std::size_t most_shared = 0;      ///< Bytes of shared memory that a block may have.
  std::size_t multiprocessors = 0;  ///< Of the GPU.
  DType multiplies_in = DType::f32; ///< Device::multiply_in()
  bool allows_tf32 = false;         ///< Device::allow_tf32()
  Narrowed* narrowed = nullptr;     ///< What is multiplied so (matmul.h).
};
/// Doubles, 8 MiB: norm_backward leaves two sums a column, of 1024 columns about 1000 blocks'.
inline constexpr std::size_t k_cuda_partials = std::size_t{1} << 20;
inline constexpr std::size_t k_cuda_arrivals = 1024;
inline constexpr std::size_t k_cuda_workspace = std::size_t{32} << 20; ///< What Hopper asks for.

} // namespace trainer
