// Matrix products with cuBLASLt if it is found; the kernels of product.cuh serve without it.
//
// The library is asked once for the best algorithm of a shape, and the answer is kept: with the
// same library a shape is computed the same way in every step and run. Algorithms whose sums depend
// on the order of blocks (CUBLASLT_REDUCTION_SCHEME_INPLACE) are excluded, so that runs repeat bit
// for bit. Products are float32, except: with TF32 allowed the library rounds operands (our own
// kernels do not), and where a model computes in 16 bits operands are, or are rounded to, that
// type. Sums are float32.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "trainer/device/cuda/stream.h"
#include "trainer/device/matmul.h"
#include "trainer/on_both.h"

namespace trainer {

/// What a plan depends on: a Matmul without its addresses. Row strides are never 0.
struct MatmulShape {
  using Epilogue = Matmul::Epilogue;

  std::size_t m;
  std::size_t n;
  std::size_t k;
  bool a_is_turned;
  bool b_is_turned;
  DType factor_type; ///< Type of A and B.
  DType type;        ///< Type of C and of a bias.
  bool is_tf32;      ///< Float32 operands are rounded to TF32.
  Epilogue epilogue;
  bool accumulate;
  std::size_t a_row;
  std::size_t b_row;
  std::size_t c_row;
  std::size_t batch;
  std::size_t a_batch;
  std::size_t b_batch;
  std::size_t c_batch;
  /// Alignments of the addresses in bytes, powers of two up to 256.
  unsigned a_alignment = 0;
  unsigned b_alignment = 0;
  unsigned c_alignment = 0;

  auto operator<=>(const MatmulShape&) const = default;
};

/// The addresses of a product: those of Matmul, but of rounded copies where operands were rounded.
/// The gradient of a bias is float32.
struct MatmulMemory {
  const void* a;
  const void* b;
  void* c;
  const void* added; ///< With MatmulShape::accumulate: C, or the matrix to add to it.
  const void* with;
  void* beside;
};

/// The library, or a test's stand-in. All functions return 0 or an error code.
struct Blas {
  /// The best algorithm within so many bytes of workspace; null: none with this epilogue.
  int (*plan)(int gpu, const MatmulShape& shape, std::size_t workspace, void** plan);
  /// Launches it on the stream, with the stream's workspace.
  int (*run)(void* plan, const CudaStreamHandle* stream, const MatmulMemory& memory);
};

/// A stream's cache of float32 operands rounded to 16 bits, such as parameters. A copy is reused by
/// the products that directly follow, so a float32 gradient is rounded once for both of its
/// products.
class Narrowed {
 public:
  /// `allocations`: the device's counter of allocations.
  Narrowed(int gpu, std::atomic<std::uint64_t>& allocations)
      : gpu_(gpu), allocations_(allocations) {}
  ~Narrowed() { free(); }
  Narrowed(const Narrowed&) = delete;
  Narrowed& operator=(const Narrowed&) = delete;

  struct Matrix {
    const float* from;
    std::size_t rows;
    std::size_t columns;
    std::size_t stride;
    std::size_t padded_rows = rows; ///< Rows of the copy, padded with zeros.

    bool operator==(const Matrix&) const = default;
    /// Row stride of the copy, so that each row is aligned to 16 bytes.
    DTRAIN_ON_BOTH std::size_t row() const { return (columns + 7) / 8 * 8; }
  };
  /// Begins a product: copies got from here on stay until the next begin.
  void begin_product() { before_product_ = uses_; }
  /// `to`: the matrix rounded to the type in which the stream multiplies, unless it is cached.
  int get(const CudaStreamHandle* stream, const Matrix& matrix, const void** to);
  /// Forgets all copies: other work on the stream may have written anywhere,
  void forget();
  /// or only in this range.
  void forget(const TypedPointer& written, std::size_t count);
  void free();

 private:
  struct Slot {
    Matrix matrix{};
    void* memory = nullptr;
    std::size_t bytes = 0;
    std::uint64_t used = 0; ///< Higher is more recent.
  };

  int gpu_;
  std::atomic<std::uint64_t>& allocations_;
  std::uint64_t uses_ = 0;
  std::uint64_t before_product_ = 0;
  std::array<Slot, 4> slots_;
};

/// The library; null if there is none.
const Blas* find_blas();

/// Returned if the product must be computed by our own kernels.
inline constexpr int k_no_blas = -1;

/// Launches a product on the stream. `has_ended`: whether the epilogue was applied, too.
int multiply(const CudaStreamHandle* stream, const Matmul& matmul, bool& has_ended);

} // namespace trainer
