// What models of text compute: plain loops around the CPU's product, what other devices' kernels
// are compared with.
#pragma once

#include "trainer/device/text_kernels.h"

namespace trainer {

extern const TextKernels k_plain_text;

} // namespace trainer
