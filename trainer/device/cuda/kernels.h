// The kernels' side of the plug-in's table (plugin.h).
#pragma once

#include "trainer/device/cuda/plugin.h"

namespace trainer {

/// Fills in the table's kernels.
void set_flat_kernels(DtrainCuda& table);
void set_layer_kernels(DtrainCuda& table);

} // namespace trainer
