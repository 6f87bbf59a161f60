// The kernels' side of the plug-in's table (plugin.h).
#pragma once

#include "trainer/device/cuda/plugin.h"

namespace trainer {

/// Fills in NCCL.
void set_nccl(DtrainCuda& table);
/// Fills in the table's kernels.
void set_flat_kernels(DtrainCuda& table);
void set_layer_kernels(DtrainCuda& table);
void set_convolution_kernels(DtrainCuda& table);
void set_text_kernels(DtrainCuda& table);
void set_attention_kernels(DtrainCuda& table);

} // namespace trainer
