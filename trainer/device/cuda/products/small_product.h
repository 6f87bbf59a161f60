// Products that take a GPU less time than the library takes to launch its two kernels: an MLP's
// first layer, with 64 rows of 784 values and 128 outputs, in 3 µs where cuBLASLt splits k and adds
// up the parts in 12.
#pragma once

#include "trainer/device/cuda/stream.h"
#include "trainer/device/matmul.h"

namespace trainer {

/// Whether it is x · Wᵀ in float32, and its tiles fit on the GPU all at once.
bool is_small_product(const CudaStreamHandle& stream, const Matmul& s);

/// Launches such a product, with its epilogue. Returns 0 or an error code.
int put_small_product(const CudaStreamHandle* stream, const Matmul& s);

} // namespace trainer
