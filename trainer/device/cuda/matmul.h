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

#include "trainer/device/cuda/stream.h"
#include "trainer/device/matmul.h"

namespace trainer {

/// What a plan is made for: of a Matmul all but where it lies.
struct MatmulShape {
  using Epilogue = Matmul::Epilogue;

  std::size_t m;
  std::size_t n;
  std::size_t k;
  bool a_is_turned;
  bool b_is_turned;
  Epilogue epilogue; ///< none, bias or relu_bias
  bool accumulate;
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

/// Puts it on the stream; of another epilogue than none, bias and relu_bias the product alone. Of a
/// batch, or rows that do not lie on end: k_no_blas.
int multiply(const CudaStreamHandle* stream, const Matmul& matmul);

} // namespace trainer
