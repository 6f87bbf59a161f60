// How well a run used its device, for its last lines.
#pragma once

#include <cstddef>
#include <string>

#include "trainer/device/device.h"

namespace trainer {

/// "123,456 samples/s a device, 0.075 TFLOP/s, 0.11 % of its 67.0 of float32; 0.04 GiB of its
/// memory at most": the share is the model FLOPs utilization (MFU). `tokens`: of a sample of text,
/// which then count in place of samples; 0: no text. `flops`: of a sample; where that or the
/// device's peak is 0, the share is unknown.
std::string figures_text(double samples_per_second, std::size_t tokens, double flops,
                         const Device& device);

} // namespace trainer
