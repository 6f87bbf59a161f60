// The device of tests that compare with plain loops.
#pragma once

#include "trainer/device/cpu/cpu_device.h"

namespace trainer {

inline Device& test_device() {
  static CpuDevice device(portable_kernels());
  return device;
}

} // namespace trainer
