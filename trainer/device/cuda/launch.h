// Kernel launches for two compilers: nvcc, and g++, with which the same sources run on the CPU
// (tests/cuda_on_cpu).
//
//   launch(kernel, grid, block, shared_bytes, stream, arguments…)   instead of <<<…>>>
//   DYNAMIC_SHARED(float, tile)                                     instead of extern __shared__
//   DTRAIN_UNROLL                                                   instead of #pragma unroll
#pragma once

#ifdef DTRAIN_CUDA_ON_CPU
#define DTRAIN_UNROLL
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#else
#include "trainer/device/cuda/stream.h"

#define DTRAIN_UNROLL _Pragma("unroll")
#define DYNAMIC_SHARED(type, name)                                                                 \
  extern __shared__ __align__(16) unsigned char dynamic_shared_[];                                 \
  type* name = reinterpret_cast<type*>(dynamic_shared_)

namespace trainer {

/// `shared`: at most stream->most_shared.
template <typename... Parameters, typename... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared,
           const CudaStreamHandle* stream, Arguments... arguments) {
  if (const cudaError_t error = cudaSetDevice(stream->gpu); error != cudaSuccess) {
    return error;
  }
  constexpr std::size_t k_most_unasked = 48 << 10;
  if (shared > k_most_unasked) {
    if (const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(shared));
        error != cudaSuccess) {
      return error;
    }
  }
  kernel<<<grid, block, shared, stream->stream>>>(static_cast<Parameters>(arguments)...);
  return cudaGetLastError();
}

} // namespace trainer
#endif
