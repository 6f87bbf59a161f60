// Layers as plain loops: what other devices' kernels are compared with.
#pragma once

#include "trainer/device/kernels.h"

namespace trainer {

extern const LayerKernels k_plain_layers;

} // namespace trainer
