// Layers, casts and the gathering of samples on the CPU: plain loops around its product, what other
// devices' are compared with.
#pragma once

#include "trainer/device/kernels.h"

namespace trainer {

extern const LayerKernels k_plain_layers;

void plain_gather(Stream& stream, const Gathering& gathering);
void plain_narrow(Stream& stream, std::size_t n, DType type, const float* from, void* to);
void plain_widen(Stream& stream, std::size_t n, DType type, const void* from, float* to);

} // namespace trainer
