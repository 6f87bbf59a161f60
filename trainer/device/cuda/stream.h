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
  /// Of the GPU's memory: what blocks of a kernel leave for the last one to add up.
  double* partial = nullptr;
  void* workspace = nullptr; ///< Likewise, of matrix products (matmul.h).
  std::size_t workspace_bytes = 0;
  DType multiplies_in = DType::f32; ///< Device::multiply_in()
  Narrowed* narrowed = nullptr;     ///< What is multiplied so (matmul.h).
};
inline constexpr std::size_t k_cuda_partials = 2048;                   ///< Doubles.
inline constexpr std::size_t k_cuda_workspace = std::size_t{32} << 20; ///< What Hopper asks for.

} // namespace trainer
