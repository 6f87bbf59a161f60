#include "trainer/device/cpu/kernels.h"

#include <cstdlib>
#include <string>

#include "trainer/errors.h"

namespace trainer {

const CpuKernels& best_kernels() {
  const char* asked = std::getenv("DTRAIN_CPU_KERNELS");
  const std::string name = asked == nullptr ? "" : asked;
  const CpuKernels* avx2 = avx2_kernels();
  if (name.empty()) {
    return avx2 != nullptr ? *avx2 : portable_kernels();
  }
  if (name == "portable") {
    return portable_kernels();
  }
  if (name == "avx2" && avx2 != nullptr) {
    return *avx2;
  }
  throw UsageError(name == "avx2"
                       ? "DTRAIN_CPU_KERNELS=avx2: this machine has no AVX2 and FMA; unset it"
                       : "DTRAIN_CPU_KERNELS: no such set of kernels; use portable or avx2");
}

} // namespace trainer
