#include "trainer/device/cuda/errors.h"

#include <atomic>
#include <cstdlib>

#include <cuda_runtime.h>
#include <fmt/format.h>

namespace trainer {
namespace {

std::atomic<const CudaHost*> trainer_host = nullptr; ///< The trainer that loaded this plug-in.

thread_local int current_gpu = -1; ///< The thread's current device; -1: none was set.

/// Advice for an error; empty if CUDA's own text is enough.
const char* advice(int error) {
  switch (error) {
  case cudaErrorECCUncorrectable:
    return "; the GPU's memory is faulty: reset it (nvidia-smi --gpu-reset), or hide it with "
           "CUDA_VISIBLE_DEVICES";
  case cudaErrorDevicesUnavailable:
    return "; another process has the GPU to itself (nvidia-smi shows its compute mode)";
  case cudaErrorLaunchFailure:
  case cudaErrorUnknown:
    return "; see dmesg for an Xid error of the GPU";
  default:
    return "";
  }
}

} // namespace

void report_to(const CudaHost& host) { trainer_host = &host; }

void fail_cuda(const std::string& what) {
  trainer_host.load()->error(what.c_str());
  std::abort(); // Not reached: the host throws.
}

void refuse_cuda(const std::string& what) {
  trainer_host.load()->usage_error(what.c_str());
  std::abort();
}

const char* cuda_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

void check_cuda(int error, std::string_view what) {
  if (error != cudaSuccess) {
    const std::string where = current_gpu < 0 ? "" : fmt::format("gpu:{}: ", current_gpu);
    fail_cuda(fmt::format("CUDA: {}{}: {}{}", where, what, cuda_text(error), advice(error)));
  }
}

void use_gpu(int gpu, std::string_view what) {
  current_gpu = gpu;
  check_cuda(cudaSetDevice(gpu), what);
}

} // namespace trainer
