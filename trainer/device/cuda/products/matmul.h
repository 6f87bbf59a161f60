// Matrix products with cuBLASLt if it is found; the kernels of product.cuh serve without it.
//
// The library is asked once for the best algorithm of a shape, and the answer is kept: with the
// same library a shape is computed the same way in every step and run. Algorithms whose sums depend
// on the order of blocks (CUBLASLT_REDUCTION_SCHEME_INPLACE) are excluded, so that runs repeat bit
// for bit. Products are float32, except: with TF32 allowed the library rounds operands (our own
// kernels do not), and where a model computes in 16 bits operands are, or are rounded to, that
// type. Sums are float32.
//
// In FP8 (MatmulPrecision::fp8) operands are copies that fp8.h makes, each with a scale for the
// whole tensor by its current largest magnitude: nothing is kept from step to step. The library
// multiplies FP8 only where both operands are contiguous along k, in rows of whole 16 bytes, so the
// copies are. A product that it has no algorithm for stays in bf16. Cost: a copy reads each bf16
// value twice and writes it once, 5 bytes; the product saves m·n·k / P seconds where bf16 has P
// FLOP/s. By an H200's peaks (about 800 TFLOP/s, 4.8 TB/s) FP8 gains where m·n / (m + n) is
// above 830, and below where a copy serves two products or the L2 cache has the second reading.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/device/cuda/memory/gpu_memory.h"
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
  DType factor_type; ///< Type of A and B; in FP8: u8.
  Matmul::Fp8 fp8;   ///< In what FP8 they are.
  DType type;        ///< Type of C and of a bias, which in FP8 is bf16.
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
/// The gradient of a bias is float32. In FP8 A and B are multiplied by scales, on the GPU.
struct MatmulMemory {
  const void* a;
  const void* b;
  void* c;
  const void* added; ///< With MatmulShape::accumulate: C, or the matrix to add to it.
  const void* with;
  void* beside;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
};

struct Fp8Largest; // fp8.h
struct Fp8Sums;

/// GPU memory for the library's products on a stream, allocated for the first one: streams of
/// copies have none.
class Workspace {
 public:
  static constexpr std::size_t k_bytes = std::size_t{32} << 20; ///< As for Hopper.

  explicit Workspace(GpuMemory& gpu) : gpu_(gpu) {}
  ~Workspace() { gpu_.free(memory_, k_bytes); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Returns 0 or an error code.
  int make() { return memory_ != nullptr ? 0 : gpu_.allocate(k_bytes, &memory_); }
  void* memory() const { return memory_; }

 private:
  GpuMemory& gpu_;
  void* memory_ = nullptr;
};

/// The library, or a test's stand-in. All functions return 0 or an error code.
struct Blas {
  /// The best algorithm within the stream's workspace; null: none with this epilogue.
  int (*plan)(const CudaStreamHandle* stream, const MatmulShape& shape, void** plan);
  /// Launches it on the stream, with the stream's workspace.
  int (*run)(void* plan, const CudaStreamHandle* stream, const MatmulMemory& memory);
};

/// A stream's cache of operands rounded to 16 bits, if they are float32, or to FP8. A copy is
/// reused by the products that directly follow, so a gradient is rounded once for both of its
/// products, and the input of several layers once for all. The largest magnitudes of many more
/// matrices are kept, 2 KB each, so that what lies unchanged from a layer's forward pass to its
/// backward pass is searched once. The least recently used goes first.
class Narrowed {
 public:
  explicit Narrowed(GpuMemory& gpu) : gpu_(gpu) {}
  ~Narrowed() { free(); }
  Narrowed(const Narrowed&) = delete;
  Narrowed& operator=(const Narrowed&) = delete;

  /// That it may take for matrices of up to so many values, rounded to 16 bits or to FP8.
  static std::size_t most_bytes(std::size_t values, bool is_fp8) {
    return k_slots * bytes_in_fp8(values) + (is_fp8 ? k_most_known * k_largest_bytes : 0);
  }

  enum class To : int { half, e4m3, e5m2 };
  struct Matrix {
    ConstTypedPointer from; ///< Float32, or to FP8 also bf16.
    std::size_t rows;
    std::size_t columns;
    std::size_t stride;
    std::size_t padded_rows = rows; ///< Rows of a copy in 16 bits, padded with zeros.
    To to = To::half;               ///< The type to which the stream multiplies, or FP8.

    bool operator==(const Matrix&) const = default;
    /// Row stride of a copy in 16 bits, so that each row is aligned to 16 bytes.
    DTRAIN_ON_BOTH std::size_t row() const { return (columns + 7) / 8 * 8; }
  };
  /// Begins a product: copies got from here on stay until the next begin.
  void begin_product() { before_product_ = uses_; }
  /// `to`: the matrix rounded to the type in which the stream multiplies, unless it is cached.
  int get(const CudaStreamHandle* stream, const Matrix& matrix, const void** to);
  /// Layouts of a copy in FP8, contiguous: (rows, columns), (columns, rows), or both, which one
  /// kernel makes in the time of one.
  enum class Layouts : unsigned { as_is = 1, turned = 2, both = 3 };
  struct Fp8Copy {
    const void* as_is;
    const void* turned;
    const float* scale; ///< The matrix is the copy times this.
  };
  /// The same in FP8, for a matrix that fp8.h takes; layouts that are not asked for are undefined.
  /// `sums`: if they go anywhere and the copy is made now, transposed, then of the columns, and
  /// `has_summed` is set.
  int get_fp8(const CudaStreamHandle* stream, const Matrix& matrix, Layouts layouts,
              const Fp8Sums& sums, Fp8Copy* to, bool& has_summed);
  /// Where the kernel put next leaves the largest magnitude of the matrix, which it writes, in so
  /// many blocks: get_fp8() then does not look for it.
  int expect_fp8(const Matrix& matrix, unsigned blocks, Fp8Largest** to);
  /// Forgets all copies: other work on the stream may have written anywhere,
  void forget();
  /// or only in this range.
  void forget(const TypedPointer& written, std::size_t count);
  void free();

 private:
  static constexpr std::size_t k_slots = 4;
  static constexpr std::size_t k_most_known = 1024;
  static constexpr std::size_t k_largest_bytes = 2304; ///< As cudaMalloc() aligns what follows.
  /// Room for both layouts.
  static std::size_t bytes_in_fp8(std::size_t values) { return 2 * values; }

  /// A matrix whose largest magnitude is known, in the place of the same number in `largest_`.
  struct Known {
    Matrix matrix{};
    unsigned blocks = 0; ///< That have left it.
    std::uint64_t used = 0;
  };
  struct Slot {
    Matrix matrix{};
    void* memory = nullptr;
    std::size_t bytes = 0;
    std::uint64_t used = 0; ///< Higher is more recent.
    unsigned made = 0;      ///< Layouts that the copy has, by bits.
  };

  /// The entry of the matrix; else the one used the longest ago, but none of the product begun;
  /// else null.
  template <typename Entry>
  Entry* own_or_oldest(std::span<Entry> entries, const Matrix& matrix) const;
  template <typename Entry>
  static bool is_of(const Entry& entry, const Matrix& matrix) {
    return entry.used != 0 && entry.matrix == matrix;
  }
  /// The slot of the matrix: its copy's, or, with nothing made yet, one that no longer is in use.
  int find_slot(const Matrix& matrix, std::size_t bytes, Slot** slot);
  /// The place of the matrix: its own, or, with no blocks yet, one that no longer is in use.
  int find_largest(const Matrix& matrix, Known** known, Fp8Largest** to);

  GpuMemory& gpu_;
  std::uint64_t uses_ = 0;
  std::uint64_t before_product_ = 0;
  std::array<Slot, k_slots> slots_;
  std::vector<Known> known_;
  void* largest_ = nullptr;
};

/// The library; null if there is none.
const Blas* find_blas();

/// Returned if the product must be computed by our own kernels.
inline constexpr int k_no_blas = -1;

/// Whether the product is one that FP8 is for, and of memory that its kernels take; `s` has
/// explicit strides.
bool takes_fp8(const CudaStreamHandle& stream, const Matmul& s, std::size_t batch);

/// Launches a product on the stream. `has_ended`: whether the epilogue was applied, too.
int multiply(const CudaStreamHandle* stream, const Matmul& matmul, bool& has_ended);

} // namespace trainer
