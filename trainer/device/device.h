// Which device this rank computes on.
#pragma once

#include <string>

#include "trainer/device/cpu/kernels.h"

namespace trainer {

struct Device {
  std::string description; ///< "cpu (avx2 kernels, 1 thread)", with why where it was chosen
  const CpuKernels* kernels = nullptr;
};

/// `choice`: auto, cpu or cuda. Throws UsageError for cuda, saying what is missing.
Device select_device(const std::string& choice);

} // namespace trainer
