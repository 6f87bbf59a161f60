#include "trainer/device/cuda/memory/gpu_memory.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "trainer/device/cuda/errors.h"

namespace trainer {
namespace {

/// Of all GPUs.
struct Noted {
  std::shared_mutex mutex;
  std::map<const std::byte*, std::size_t> bytes; ///< By where it begins.
};

Noted& noted() {
  static Noted one;
  return one;
}

} // namespace

void note_memory(const void* first, std::size_t bytes) {
  const std::lock_guard lock(noted().mutex);
  noted().bytes[static_cast<const std::byte*>(first)] = bytes;
}

void forget_memory(const void* first) {
  const std::lock_guard lock(noted().mutex);
  noted().bytes.erase(static_cast<const std::byte*>(first));
}

bool is_pageable(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  const std::shared_lock lock(noted().mutex);
  const auto behind = noted().bytes.upper_bound(at);
  if (behind == noted().bytes.begin()) {
    return true;
  }
  const auto& [first, bytes] = *std::prev(behind);
  return at >= first + bytes;
}

int GpuMemory::allocate(std::size_t bytes, void** to) {
  change();
  if (trim_) {
    trim_();
  }
  cudaError_t error = cudaSetDevice(gpu_);
  if (error == cudaSuccess && (error = cudaMalloc(to, bytes)) == cudaSuccess) {
    add(static_cast<std::ptrdiff_t>(bytes));
    note_memory(*to, bytes);
  }
  return error;
}

void GpuMemory::free(void* memory, std::size_t bytes) {
  if (memory != nullptr) {
    cudaSetDevice(gpu_);
    forget_memory(memory);
    cudaFree(memory);
    add(-static_cast<std::ptrdiff_t>(bytes));
  }
}

void GpuMemory::fail_without(std::size_t bytes, int error) const {
  std::size_t free = 0;
  std::size_t all = 0;
  cudaMemGetInfo(&free, &all);
  const auto gib = [](std::size_t some) { return static_cast<double>(some) / (1 << 30); };
  fail_cuda(fmt::format(
      "gpu:{}: no {:.2f} GiB more, beside the {:.2f} GiB that this process has there: of {:.2f} "
      "GiB {:.2f} are free ({}){}; lower --batch-size or --hidden (--plan-memory says what each "
      "--zero-stage takes), or end other programs on it (nvidia-smi lists them)",
      gpu_, gib(bytes), gib(bytes_), gib(all), gib(free), cuda_text(error),
      planned_ ? fmt::format("; this rank is planned to take {:.2f}", gib(planned_())) : ""));
}

} // namespace trainer
