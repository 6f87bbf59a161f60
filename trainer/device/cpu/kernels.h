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
  const float* a = nullptr; ///< a[row * a_row + column * a_column]
  std::size_t a_row = 0;
  std::size_t a_column = 1;
  const float* b = nullptr; ///< (panels, k, 16)
  float* c = nullptr;       ///< c[panel * c_panel + row * c_row + 0…15]
  std::size_t c_row = 0;
  std::size_t c_panel = 0;
  bool accumulate = false; ///< C += A·B
};

struct Adam {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float step_size = 0;           ///< learning rate / (1 - beta1^t)
  float inverse_correction2 = 0; ///< 1 / sqrt(1 - beta2^t)
};

/// What a batch scored.
struct Score {
  double loss = 0; ///< Sum over samples.
  std::int64_t correct = 0;
  std::int64_t count = 0;
};

struct CpuKernels {
  const char* name;

  void (*gemm)(const Gemm& gemm);

  /// y = relu(y + bias), y (rows, width) row-major, bias (width).
  void (*bias_relu)(std::size_t rows, std::size_t width, const float* bias, float* y);

  /// dy = y > 0 ? dy : 0, and dbias += column sums of dy. y (rows, width) row-major; dy in panels
  /// (width / 16, rows, 16).
  void (*relu_backward)(std::size_t rows, std::size_t width, const float* y, float* dy,
                        float* dbias);

  /// Softmax and cross-entropy of one panel of logits (rows, 16) of which `classes` count.
  /// `logits` becomes its own gradient, (softmax - onehot) * scale, zero past `classes`.
  /// `bias` (16) is added to the logits first; dbias (16) += the gradient's column sums.
  Score (*softmax_cross_entropy)(std::size_t rows, std::size_t classes, const std::uint8_t* labels,
                                 const float* bias, float scale, float* logits, float* dbias);

  /// One Adam step over n parameters in a single pass: 16 bytes read and 12 written a parameter.
  void (*adam)(std::size_t n, const Adam& adam, const float* gradient, float* m, float* v,
               float* parameter);

  /// to = from / 255
  void (*bytes_to_floats)(std::size_t n, const std::uint8_t* from, float* to);
};

/// Plain loops: for any machine, and the oracle of the others in tests.
const CpuKernels& portable_kernels();

/// AVX2 and FMA; null where this machine or this build has none.
const CpuKernels* avx2_kernels();

/// The fastest set that this machine runs. DTRAIN_CPU_KERNELS=portable|avx2 overrides.
/// Throws UsageError for a set that does not exist here.
const CpuKernels& best_kernels();

} // namespace trainer
