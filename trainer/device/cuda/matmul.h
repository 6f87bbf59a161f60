// Products of matrices by the vendor's library, cuBLASLt, where it is found; the kernels of
// product.cuh do without it.
//
// How a product of some shape is best computed on a GPU is asked for once and remembered: the same
// shape is computed the same way in every step and every run, by the same library. No way is taken
// that adds to memory in whatever order blocks come (CUBLASLT_REDUCTION_SCHEME_INPLACE): runs are
// repeated bit for bit. Products are in float32 throughout, but where TF32 is allowed: the library
// rounds what it multiplies, and our own kernels do not; and where a model computes in 16 bits:
// what it multiplies is of them, or is rounded to them before. Sums are in float32.
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

/// What a plan is made for: of a Matmul all but where it lies. No stride between rows is 0.
struct MatmulShape {
  using Epilogue = Matmul::Epilogue;

  std::size_t m;
  std::size_t n;
  std::size_t k;
  bool a_is_turned;
  bool b_is_turned;
  DType factor_type; ///< A's and B's,
  DType type;        ///< and C's, and of a bias.
  bool is_tf32;      ///< Factors of float32 are rounded to TF32.
  Epilogue epilogue;
  bool accumulate;
  std::size_t a_row;
  std::size_t b_row;
  std::size_t c_row;
  std::size_t batch;
  std::size_t a_batch;
  std::size_t b_batch;
  std::size_t c_batch;
  /// Of the memory, in bytes, powers of two up to 256.
  unsigned a_alignment = 0;
  unsigned b_alignment = 0;
  unsigned c_alignment = 0;

  auto operator<=>(const MatmulShape&) const = default;
};

/// Where a product lies: as Matmul has it, but for what has been rounded. A bias' gradient is of
/// float32.
struct MatmulMemory {
  const void* a;
  const void* b;
  void* c;
  const void* added; ///< Where MatmulShape::accumulate is: C, or what is added to it.
  const void* with;
  void* beside;
};

/// The library, or what tests have in its place. All return 0 or an error code.
struct Blas {
  /// The best way to compute it within so many bytes of workspace; null: there is none, of this
  /// epilogue.
  int (*plan)(int gpu, const MatmulShape& shape, std::size_t workspace, void** plan);
  /// Puts it on the stream, with the stream's own workspace.
  int (*run)(void* plan, const CudaStreamHandle* stream, const MatmulMemory& memory);
};

/// What a stream multiplies in 16 bits and is of float32, as parameters are: it is rounded before,
/// and used again by the products that follow at once. So where activations are of float32, too, a
/// gradient is rounded once for both of its products.
class Narrowed {
 public:
  /// `allocations`: of the device, counted up where memory is taken.
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
    std::size_t padded_rows = rows; ///< As it is rounded, with zeros behind its own.

    bool operator==(const Matrix&) const = default;
    /// From row to row as it is rounded, so that each begins at 16 bytes.
    DTRAIN_ON_BOTH std::size_t row() const { return (columns + 7) / 8 * 8; }
  };
  /// What is got from here on is of one product, and stays until the next.
  void begin_product() { before_product_ = uses_; }
  /// `to`: the matrix, rounded on the stream to what that multiplies in, if it is not there yet.
  int get(const CudaStreamHandle* stream, const Matrix& matrix, const void** to);
  /// Something else has been put on the stream, which may have written anywhere,
  void forget();
  /// or only there.
  void forget(const TypedPointer& written, std::size_t count);
  void free();

 private:
  struct Slot {
    Matrix matrix{};
    void* memory = nullptr;
    std::size_t bytes = 0;
    std::uint64_t used = 0; ///< The higher, the later.
  };

  int gpu_;
  std::atomic<std::uint64_t>& allocations_;
  std::uint64_t uses_ = 0;
  std::uint64_t before_product_ = 0;
  std::array<Slot, 4> slots_;
};

/// Null: there is none here.
const Blas* find_blas();

/// Returned where it has to be computed by other means.
inline constexpr int k_no_blas = -1;

/// Puts it on the stream. `has_ended`: with its epilogue; else the product alone.
int multiply(const CudaStreamHandle* stream, const Matmul& matmul, bool& has_ended);

} // namespace trainer
