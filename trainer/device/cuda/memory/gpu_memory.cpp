#include "trainer/device/cuda/memory/gpu_memory.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "trainer/device/cuda/errors.h"

namespace trainer {

int GpuMemory::allocate(std::size_t bytes, void** to) {
  change();
  cudaError_t error = cudaSetDevice(gpu_);
  if (error == cudaSuccess && (error = cudaMalloc(to, bytes)) == cudaSuccess) {
    add(static_cast<std::ptrdiff_t>(bytes));
  }
  return error;
}

void GpuMemory::free(void* memory, std::size_t bytes) {
  if (memory != nullptr) {
    cudaSetDevice(gpu_);
    cudaFree(memory);
    add(-static_cast<std::ptrdiff_t>(bytes));
  }
}

void GpuMemory::fail_without(std::size_t bytes, int error) const {
  std::size_t free = 0;
  std::size_t all = 0;
  cudaMemGetInfo(&free, &all);
  const auto gib = [](std::size_t some) { return static_cast<double>(some) / (1 << 30); };
  fail_cuda(fmt::format("gpu:{}: no {:.2f} GiB more, beside the {:.2f} GiB that this process "
                        "has there: of {:.2f} GiB {:.2f} are free ({}); lower --batch-size "
                        "or --hidden, or end other programs on it (nvidia-smi lists them)",
                        gpu_, gib(bytes), gib(bytes_), gib(all), gib(free), cuda_text(error)));
}

} // namespace trainer
