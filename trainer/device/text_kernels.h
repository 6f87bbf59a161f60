// What text models compute beside products (matmul.h) and LayerKernels (kernels.h). All arrays are
// row-major and contiguous. Activations and their gradients are typed pointers, all of one type in
// a call; the arithmetic is float32.
//
// Letters: B rows of T tokens, N = B·T; hidden size H, A heads of D = H / A each; V words in the
// vocabulary; at most K masked tokens a row. The order of every sum is fixed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/typed_pointer.h"
#include "trainer/on_both.h"

namespace trainer {

class Stream;
struct Score;

/// The random numbers behind words of 16 keep bits: those of random_at(seed, dropout, substream)
/// from counter `first` on, one counter for each half of a word. A bit is 1 if its 16 random bits
/// are `threshold` or more.
struct KeepBits {
  std::uint64_t seed;
  std::uint32_t substream;
  std::uint64_t first;
  std::uint32_t threshold;
};

/// Bits of a word of keep_bits().
inline constexpr std::size_t k_keep_bits = 16;

/// Words of keep bits for so many values.
DTRAIN_ON_BOTH constexpr std::size_t keep_words(std::size_t values) {
  return (values + k_keep_bits - 1) / k_keep_bits;
}

/// Dropout: values whose bit is 1 are kept and multiplied by `scale`, which preserves the mean.
/// Each row of a matrix begins with a new word. Null keeps all.
struct Dropped {
  const std::uint16_t* keep = nullptr;
  float scale = 1;
};

/// Rows of values to drop some of.
struct DropShape {
  std::size_t rows;
  std::size_t width;

  DTRAIN_ON_BOTH constexpr std::size_t values() const { return rows * width; }
};

struct TextShape {
  std::size_t rows;   ///< B
  std::size_t length; ///< T
  std::size_t width;  ///< H

  DTRAIN_ON_BOTH constexpr std::size_t tokens() const { return rows * length; }
};

struct NormShape {
  std::size_t rows;
  std::size_t width;
  float epsilon;
};

struct AttentionShape {
  std::size_t rows;       ///< B
  std::size_t length;     ///< T
  std::size_t heads;      ///< A
  std::size_t depth;      ///< D
  bool is_causal = false; ///< A token attends to none after it.

  DTRAIN_ON_BOTH constexpr std::size_t width() const { return heads * depth; }
  /// Rows of T probabilities each, and the words of keep bits a row.
  DTRAIN_ON_BOTH constexpr std::size_t lines() const { return rows * heads * length; }
  DTRAIN_ON_BOTH constexpr std::size_t words_a_line() const { return keep_words(length); }
};

/// Queries, keys and values, or their gradients: (N, H) each, or side by side in one (N, 3·H).
template <typename Pointer>
struct Heads {
  Pointer query;
  Pointer key;
  Pointer value;
  std::size_t stride = 0; ///< From a token to the next; 0: contiguous.

  DTRAIN_ON_BOTH std::size_t row(std::size_t width) const { return stride != 0 ? stride : width; }
  /// The same, read-only.
  template <typename Other>
  operator Heads<Other>() const { // NOLINT(google-explicit-constructor)
    return {query, key, value, stride};
  }
};

/// M = B·K slots for masked tokens: `masked` (B, K) is the token of its row that a slot holds; -1:
/// none.
struct MaskedShape {
  std::size_t rows;        ///< B
  std::size_t length;      ///< T
  std::size_t most_masked; ///< K
  std::size_t width;       ///< H, or V for logits
  std::size_t row = 0;     ///< From the logits of a slot to the next; 0: contiguous.

  DTRAIN_ON_BOTH constexpr std::size_t row_size() const { return row == 0 ? width : row; }
  DTRAIN_ON_BOTH constexpr std::size_t slots() const { return rows * most_masked; }
};

struct TextKernels {
  void (*keep_bits)(Stream&, const KeepBits& which, std::size_t words, std::uint16_t* to);
  /// to = dropped x; `to` may be x.
  void (*drop)(Stream&, const DropShape& shape, const Dropped& dropped, ConstTypedPointer x,
               TypedPointer to);
  /// x = dropped x + residual
  void (*drop_and_add)(Stream&, const DropShape& shape, const Dropped& dropped,
                       ConstTypedPointer residual, TypedPointer x);

  /// to (N, H) = words (V, H)[ids (N)] + type (H) + positions (T, H); every id is below V. In
  /// models without types, `type` and `dtype` are null.
  void (*embed)(Stream&, const TextShape& shape, const std::int32_t* ids, const float* words,
                const float* type, const float* positions, TypedPointer to);
  /// dwords (V, H), dtype (H) and dpositions (T, H) += the corresponding rows of dy (N, H).
  void (*embed_backward)(Stream&, const TextShape& shape, const std::int32_t* ids,
                         ConstTypedPointer dy, float* dwords, float* dtype, float* dpositions);

  /// For each row, y = (x - mean) / sqrt(variance + epsilon) · gain + shift. `moments` (rows, 2)
  /// are written: mean and 1 / sqrt(variance + epsilon).
  void (*norm)(Stream&, const NormShape& shape, ConstTypedPointer x, const float* gain,
               const float* shift, TypedPointer y, float* moments);
  /// x = dropped x + residual, and norm() of that, in one pass.
  void (*add_and_norm)(Stream&, const NormShape& shape, const Dropped& dropped,
                       ConstTypedPointer residual, TypedPointer x, const float* gain,
                       const float* shift, TypedPointer y, float* moments);
  /// dy becomes dx; or, if `onto` is not null, dx is added to `onto` and dy is undefined
  /// afterwards. dgain and dshift are overwritten, or added to with `accumulate`.
  void (*norm_backward)(Stream&, const NormShape& shape, ConstTypedPointer x, const float* moments,
                        const float* gain, bool accumulate, TypedPointer dy, TypedPointer onto,
                        float* dgain, float* dshift);

  /// dy becomes dx, where x (n values) is the input of gelu (Matmul::Epilogue::gelu_bias).
  void (*gelu_backward)(Stream&, std::size_t n, ConstTypedPointer x, TypedPointer dy);

  /// context (N, H) = dropped p · values, where p = softmax(queries · keysᵀ / √D) for each head,
  /// over the first `lengths` (B; at least 1) tokens of the row, and with `is_causal` only up to
  /// the token itself; 0 elsewhere. `p`, attention_room() floats, is kept for backward: (B, A, T,
  /// T) before dropout, or what the device recomputes it from.
  void (*attention)(Stream&, const AttentionShape& shape, const std::int32_t* lengths,
                    const Dropped& dropped, const Heads<ConstTypedPointer>& of, float* p,
                    TypedPointer context);
  /// The gradients of queries, keys and values, from dcontext (N, H). `room` is scratch memory as
  /// large as `p`.
  void (*attention_backward)(Stream&, const AttentionShape& shape, const std::int32_t* lengths,
                             const Dropped& dropped, const Heads<ConstTypedPointer>& of,
                             const float* p, ConstTypedPointer context, ConstTypedPointer dcontext,
                             float* room, const Heads<TypedPointer>& changes);
  /// Floats of `p`, for the type that the stream's device multiplies in now.
  std::size_t (*attention_room)(const Stream&, const AttentionShape& shape);

  /// to (M, H) = the rows of x (N, H) of the tokens in the slots; 0 for an empty slot.
  void (*gather_masked)(Stream&, const MaskedShape& shape, const std::int32_t* masked,
                        ConstTypedPointer x, TypedPointer to);
  /// The reverse: writes these rows of to (N, H) and no others.
  void (*scatter_masked)(Stream&, const MaskedShape& shape, const std::int32_t* masked,
                         ConstTypedPointer from, TypedPointer to);
  /// logits (M, V) become their gradient, (softmax - onehot) · `*scale` / the number of masked
  /// tokens in the row, 0 for an empty slot; if `scale` is null they are undefined afterwards. Adds
  /// to
  /// `*score` one sample a filled slot, correct if no logit is larger than that of `targets` (M).
  void (*masked_cross_entropy)(Stream&, const MaskedShape& shape, const std::int32_t* masked,
                               const std::int32_t* targets, const float* scale, TypedPointer logits,
                               Score* score);
};

} // namespace trainer
