// A GPU to test with: the plug-in's as tests/cuda_on_cpu compiles it, or, in unit-gpu, the
// machine's.
#pragma once

#include <memory>

#include "tests/unit/trainer/device/on_device.h"
#include "trainer/device/cuda/cuda_device.h"

namespace trainer::test {

inline std::unique_ptr<CudaDevice> make_gpu(int index = 0) {
#ifdef DTRAIN_ON_GPU
  return make_cuda_device(index, "unit-gpu");
#else
  return make_cuda_device(index, "--device=cuda", dtrain_cuda_device);
#endif
}

} // namespace trainer::test
