// Kernels that round a matrix to FP8 (trainer/device/fp8.h) for a product: first the largest
// magnitude of the matrix, which gives its scale, then its values, as they are in memory or
// transposed or both, and on the way the sums of its columns. Scales stay on the GPU, so nobody
// waits for one, and a graph may hold these kernels. Each reads the matrix once, from the L2 cache
// the second time if it fits; the values' kernel writes a byte per value and layout.
#pragma once

#include <cstdint>

#include "trainer/device/cuda/products/matmul.h"
#include "trainer/device/fp8.h"

namespace trainer {

/// cuBLASLt takes FP8 in rows of whole 16 bytes, so the kernels read and write no less.
inline constexpr std::size_t k_fp8_multiple = 16;

inline constexpr unsigned k_fp8_blocks = 528; ///< Most blocks that look for a largest magnitude.

/// On the GPU, of a matrix.
struct Fp8Largest {
  Fp8Scale scale; ///< Which put_fp8() writes.
  /// The bits of the largest magnitude that each block has found.
  unsigned of_block[k_fp8_blocks];
};

/// Where the sums of a matrix's columns go, or are added; `to` is null: nowhere.
struct Fp8Sums {
  float* to = nullptr;
  bool accumulate = false;
};

/// Writes to->of_block, by `*blocks` blocks. The matrix's rows, columns and stride are multiples of
/// k_fp8_multiple, and so are the bytes of its address; its type is float32 or bf16.
int put_fp8_largest(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, Fp8Largest* to,
                    unsigned* blocks);
/// The matrix rounded by its scale, contiguous: `to` (rows, columns) and `turned` (columns, rows),
/// aligned to 16 bytes; null: not written. Sums only with `turned`, and if has_fp8_sums().
int put_fp8(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, Fp8Largest* largest,
            unsigned blocks, std::uint8_t* to, std::uint8_t* turned, const Fp8Sums& sums);
/// Whether the stream has room for the partial sums.
bool has_fp8_sums(const Narrowed::Matrix& matrix);

} // namespace trainer
