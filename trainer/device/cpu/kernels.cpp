#include "trainer/device/cpu/kernels.h"

#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "submit/options/environment.h"
#include "trainer/device/cpu/bf16_products.h"
#include "trainer/errors.h"

namespace trainer {

namespace {

/// AMD's family 19h (Zen 3 and 4) executes a 512-bit operation as two of 256 bits: the shorter
/// loops of AVX2 are as fast for products and faster for the rest.
bool halves_long_vectors() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amdfam19h") != 0;
#else
  return false;
#endif
}

} // namespace

const CpuKernels& best_kernels() {
  const CpuKernels* sets[] = {avx512_kernels(), avx2_kernels(), &portable_kernels()};
  if (halves_long_vectors()) {
    std::swap(sets[0], sets[1]);
  }
  const char* asked = dtrain::environment::k_cpu_kernels.value();
  const std::string name = asked == nullptr ? "" : asked;
  for (const CpuKernels* kernels : sets) {
    if (kernels != nullptr && (name.empty() || name == kernels->name)) {
      return *kernels;
    }
  }
  throw UsageError(name == "avx2" || name == "avx512"
                       ? fmt::format("DTRAIN_CPU_KERNELS={}: this machine has none; unset it", name)
                       : "DTRAIN_CPU_KERNELS: no such set of kernels; use portable, avx2 or "
                         "avx512");
}

CpuKernels with_bf16_instructions(CpuKernels kernels) {
  const char* asked = dtrain::environment::k_cpu_kernels.value();
  const std::string name = asked == nullptr ? "" : asked;
  if (kernels.arithmetic != std::string("fma")) {
    return kernels;
  }
  if (name.empty() && amx_bf16() != nullptr) {
    kernels.gemm_bf16 = gemm_by_amx_bf16;
    kernels.bf16_arithmetic = "amx";
    kernels.has_bf16 = true;
  } else if ((name.empty() || name == "avx512") && avx512_bf16() != nullptr) {
    kernels.gemm_bf16 = gemm_by_avx512_bf16;
    kernels.has_bf16 = true;
  }
  return kernels;
}

} // namespace trainer
