// Products of float32 matrices by the vendor's library, cuBLASLt, where it is found; the kernels of
// product.cuh do without it.
//
// How a product of some shape is best computed on a GPU is asked for once and remembered: the same
// shape is computed the same way in every step and every run, by the same library. No way is taken
// that adds to memory in whatever order blocks come (CUBLASLT_REDUCTION_SCHEME_INPLACE): runs are
// repeated bit for bit. Products are in float32 throughout, without TF32.
#pragma once

#include <compare>
#include <cstddef>

#include "trainer/device/cuda/plugin.h"

namespace trainer {

/// C (m, n) = A (m, k) · B (k, n), all row-major.
struct MatmulShape {
  enum class Epilogue : int { none, bias, relu_bias }; ///< Behind it; the bias is (n).

  std::size_t m;
  std::size_t n;
  std::size_t k;
  bool a_is_turned; ///< In memory A is (k, m), and B (n, k).
  bool b_is_turned;
  Epilogue epilogue = Epilogue::none;
  bool accumulate = false; ///< C += A · B
  /// Of the memory, in bytes, powers of two up to 256.
  unsigned a_alignment = 0;
  unsigned b_alignment = 0;
  unsigned c_alignment = 0;

  auto operator<=>(const MatmulShape&) const = default;
};

/// The library, or what tests have in its place. All return 0 or an error code.
struct Blas {
  /// The best way to compute it within so many bytes of workspace; null: there is none.
  int (*plan)(int gpu, const MatmulShape& shape, std::size_t workspace, void** plan);
  /// Puts it on the stream, with the stream's own workspace.
  int (*run)(void* plan, const CudaStreamHandle* stream, const float* a, const float* b,
             const float* bias, float* c);
};

/// Null: there is none here.
const Blas* find_blas();

/// Returned where it has to be computed by other means.
inline constexpr int k_no_blas = -1;

/// `shape` without its alignments. Puts it on the stream.
int multiply(const CudaStreamHandle* stream, MatmulShape shape, const float* a, const float* b,
             const float* bias, float* c);

} // namespace trainer
