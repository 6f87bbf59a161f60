// How the plug-in reports that a call of CUDA failed: the trainer that loaded it throws (CudaHost).
#pragma once

#include <string>
#include <string_view>

#include "trainer/device/cuda/cuda_device.h"

namespace trainer {

/// Call once, before all else here.
void report_to(const CudaHost& host);

/// Error
[[noreturn]] void fail_cuda(const std::string& what);
/// UsageError
[[noreturn]] void refuse_cuda(const std::string& what);

/// CUDA's own words for an error of its runtime.
const char* cuda_text(int error);

/// Fails unless `error` is cudaSuccess. `what` was done, as in "a copy", on the thread's current
/// device, which the message names.
void check_cuda(int error, std::string_view what);

/// Sets the thread's current device, to which CUDA's calls apply.
void use_gpu(int gpu, std::string_view what);

} // namespace trainer
