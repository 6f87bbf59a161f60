// The CPU's kernels, by name. Each set computes the same; they differ in the instructions used.
//
// Words:
//   panel        16 neighbouring columns of a matrix, stored row after row: 16 floats a row
//   panel layout a (K, N) matrix as ceil(N / 16) panels, one after the other: [panel][k][16].
//                The last panel's missing columns are zeros, and stay zeros through training.
//   tile         the few rows by one panel of C that a kernel holds in registers
//
// gemm computes C = A·B or C += A·B. B is in panel layout, so its rows are read in one stream; A is
// read element by element (broadcast), so any two strides will do and X, Xᵀ and H need no packing;
// C may be row-major or in panel layout. On the MLP's shapes, one core, this measured 2 to 14 %
// faster than oneDNN 2.6's and OpenBLAS 0.3.21's SGEMM, which pack both operands at every call.
// Cost: 2·M·N·K FLOP; A is read once a panel, B once every tile row (from L1 or L2).
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/cpu/text.h"
#include "trainer/device/kernels.h"

namespace trainer {

inline constexpr std::size_t k_panel = 16;

/// Columns rounded up to whole panels.
constexpr std::size_t padded(std::size_t columns) {
  return (columns + k_panel - 1) / k_panel * k_panel;
}

struct Gemm {
  std::size_t m = 0; ///< Rows of A and C.
  std::size_t k = 0; ///< Columns of A, rows of B.
  std::size_t panels = 0;
  const float* a = nullptr; ///< a[row * a_row + column * a_column], of which one is 1
  std::size_t a_row = 0;
  std::size_t a_column = 1;
  const float* b = nullptr; ///< (panels, k, 16)
  float* c = nullptr;       ///< c[panel * c_panel + row * c_row + 0…15]
  std::size_t c_row = 0;
  std::size_t c_panel = 0;
  bool accumulate = false; ///< C += A·B
  // From a row of a panel of B to the next, and from a panel to the next; 0: they lie on end.
  std::size_t b_row = k_panel;
  std::size_t b_panel = 0;
  /// For gemm_bf16 by instructions alone: B is (panels, 16, k), b_row from a column to the next.
  bool b_is_turned = false;
};

struct RowShape {
  std::size_t rows;
  std::size_t width;
  std::size_t stride; ///< From a row to the next.
};

/// A part of the result C of a product.
struct MatmulPart {
  std::size_t row;
  std::size_t rows;
  std::size_t column;
  std::size_t columns;
};

/// What Matmul (device/matmul.h) needs beside a gemm.
struct MatmulParts {
  /// from (rows, width) → the panel layout, to (ceil(width / 16), rows, 16).
  void (*pack)(const RowShape& shape, const float* from, float* to);
  /// from (rows, width) → panels of its columns, rows filled up with zeros to whole panels:
  /// to (rows / 16, width, 16). Of its transpose it is the panel layout.
  void (*pack_transposed)(const RowShape& shape, const float* from, float* to);
  /// The transpose of `from`: to (width, rows), with the row stride `to_stride`.
  void (*turn)(const RowShape& shape, const float* from, float* to, std::size_t to_stride);
  /// Applies the epilogue to this part, which holds A · B.
  void (*finish)(const Matmul& matmul, const MatmulPart& part);
  /// to = the sum of the rows of `from`, or +=; any width.
  void (*sum_rows)(const RowShape& shape, const float* from, bool accumulate, float* to);
  /// Rounds each value to bf16; `to` may be `from`. Returns whether all results are finite.
  bool (*round_bf16)(std::size_t n, const float* from, float* to);
};

/// An image of a convolution, pixel by pixel, with a column of zeros between rows that serves what
/// is left of them and what is right, and a row of zeros above and below: pixel (y, x) is number
/// y·(width + 1) + x, and images that lie on end share a row.
struct PixelGrid {
  std::size_t height = 0;
  std::size_t width = 0;

  std::size_t pitch() const { return width + 1; }
  std::size_t image() const { return (height + 1) * pitch(); }
  /// Zeros before the first pixel, and behind the last row and column.
  std::size_t margin() const { return pitch() + 1; }

  /// A pool is 2 × 2 pixels; an odd row or column is in none.
  std::size_t pools() const { return height / 2 * (width / 2); }
  /// From one of the sixteen matrices of Winograd's form to the next: (pools, channels), and a
  /// little more, that not all sixteen meet in the same lines of a cache.
  std::size_t plane(std::size_t channels) const { return pools() * channels + k_panel; }
};

/// Where an image's pools put what they make of `channels`, and where its gradient is: value
/// (y, x, channel), 16 channels on end.
struct Pooling {
  PixelGrid grid = {};
  std::size_t channels = 0;
  std::size_t to_y = 0;
  std::size_t to_x = 0;
  std::size_t to_panel = k_panel;
};

/// A convolution of 3 × 3 pixels with ReLU and max-pooling behind it, an image at a time, the bias
/// added to the largest of four. In Winograd's form, F(2 × 2, 3 × 3), what four pixels need is 16
/// products a channel, not 36: the 4 × 4 pixels d around a pool and the kernel g give
/// Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A, with the constants
///
///   Bᵀ = | 1  0 -1  0 |   G = |  1    0   0  |   Aᵀ = | 1  1  1  0 |
///        | 0  1  1  0 |       | 1/2  1/2 1/2 |        | 0  1 -1 -1 |
///        | 0 -1  1  0 |       | 1/2 -1/2 1/2 |
///        | 0  1  0 -1 |       |  0    0   1  |
///
/// so over channels it is 16 matrix products, and gradients go back through the same matrices
/// transposed. An image with pixels of several channels points at its first pixel.
struct ConvolutionKernels {
  /// weight (panels, 9, rows, 16) → to (16, panels, rows, 16), and back: gradient (+)= …
  void (*kernel)(std::size_t panels, std::size_t rows, const float* weight, float* to);
  void (*kernel_backward)(std::size_t panels, std::size_t rows, const float* change,
                          bool accumulate, float* gradient);

  /// image (grid, channels) → tiles (16, pools, channels), and back: image += …, with what is not
  /// of the image in the zeros around it.
  void (*image)(const PixelGrid& grid, std::size_t channels, const float* image, float* tiles);
  void (*image_backward)(const PixelGrid& grid, std::size_t channels, const float* tiles,
                         float* image);

  /// to = relu(max(…) + bias). `chosen` (pools, channels) becomes which of the four it was, 4 where
  /// relu made it 0.
  void (*pool)(const Pooling& pooling, const float* tiles, const float* bias, float* to,
               std::uint8_t* chosen);
  void (*pool_backward)(const Pooling& pooling, const std::uint8_t* chosen, const float* change,
                        float* tiles, float* dbias);

  /// All at once, and not in Winograd's form, of an image with one channel, weight
  /// (channels / 16, 9, 16). gradient (+)= …
  void (*one_channel)(const Pooling& pooling, const float* image, const float* weight,
                      const float* bias, float* to, std::uint8_t* chosen);
  void (*one_channel_backward)(const Pooling& pooling, const float* image,
                               const std::uint8_t* chosen, const float* change, bool accumulate,
                               float* gradient, float* dbias);
};

/// Beside what every device has, what the CPU's own models are made of.
struct CpuKernels : Kernels {
  void (*gemm)(const Gemm& gemm);
  /// The same with A and B rounded to bf16 as they are multiplied (bf16_products.h).
  void (*gemm_bf16)(const Gemm& gemm);
  /// The one of the two that the device multiplies in (Device::multiply_in); float32 at first. A
  /// convolution always uses gemm: Winograd's form adds before it multiplies and would lose more.
  void (*product)(const Gemm& gemm);

  /// y = relu(y + bias), y (rows, width) row-major, bias (width).
  void (*bias_relu)(std::size_t rows, std::size_t width, const float* bias, float* y);

  /// dy = y > 0 ? dy : 0, and dbias += column sums of dy. y (rows, width) row-major; dy in panels
  /// (width / 16, rows, 16).
  void (*relu_backward)(std::size_t rows, std::size_t width, const float* y, float* dy,
                        float* dbias);

  /// Softmax and cross-entropy of logits in panels (classes / 16, rows, 16), filled up.
  /// `logits` becomes its own gradient, (softmax - onehot) * scale, zero past `classes`.
  /// `bias` (classes) is added to the logits first; dbias (classes) += the gradient's column sums.
  /// Null dbias: no gradient is wanted, and the logits are overwritten.
  Score (*softmax_cross_entropy)(std::size_t rows, std::size_t classes, const std::int32_t* labels,
                                 const float* bias, float scale, float* logits, float* dbias);

  ConvolutionKernels convolution;
  MatmulParts parts;
  AttentionParts attention;
  bool has_bf16 = false; ///< gemm_bf16 uses bf16 instructions of the machine, not those of float32.
  const char* bf16_arithmetic = nullptr; ///< Of gemm_bf16, where it is not `arithmetic`.
};

/// Plain loops: for any machine, and the oracle of the others in tests.
const CpuKernels& portable_kernels();

/// AVX2 and FMA, and AVX-512, with the same bits; null where this machine or this build has none.
const CpuKernels* avx2_kernels();
const CpuKernels* avx512_kernels();

/// The fastest set that this machine runs. DTRAIN_CPU_KERNELS=portable|avx2|avx512 overrides.
/// Throws UsageError for a set that does not exist here.
const CpuKernels& best_kernels();

/// The same set with the machine's bf16 instructions, if any: those of AMX, or with
/// DTRAIN_CPU_KERNELS=avx512 those of AVX-512, which give the same bits as float32's.
CpuKernels with_bf16_instructions(CpuKernels kernels);

} // namespace trainer
