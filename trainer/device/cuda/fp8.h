// Kernels that round a matrix to FP8 (trainer/device/fp8.h) for a product: the scale first, by the
// largest magnitude of the matrix, then its values, as they are in memory or transposed or both.
// Scales stay on the GPU, so nobody waits for one, and a graph may hold these kernels. Each reads
// the matrix once, from the L2 cache the second time if it fits; the values' kernel writes a byte
// per value and layout.
#pragma once

#include <cstdint>

#include "trainer/device/cuda/matmul.h"
#include "trainer/device/fp8.h"

namespace trainer {

/// cuBLASLt takes FP8 in rows of whole 16 bytes, so the kernels read and write no less.
inline constexpr std::size_t k_fp8_multiple = 16;

/// *scale, on the GPU, of the matrix. Its rows, columns and stride are multiples of k_fp8_multiple,
/// and so are the bytes of its address; its type is float32 or bf16.
int put_fp8_scale(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, Fp8Scale* scale);
/// The matrix rounded by the scale, contiguous: `to` (rows, columns) and `turned` (columns, rows),
/// aligned to 16 bytes; null: not written.
int put_fp8(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, const Fp8Scale* scale,
            std::uint8_t* to, std::uint8_t* turned);

} // namespace trainer
