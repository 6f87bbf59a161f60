// What models of text compute beside products (matmul.h) and LayerKernels (kernels.h), all
// row-major and without gaps. Activations and their gradients are typed pointers, and all of a call
// are of one type; they are computed with in float32.
//
// Letters: B rows of T tokens, N = B·T; H wide, in A heads of D = H / A each; V words in the
// vocabulary; K masked tokens of a row at most. Sums are added up in an order that is always the
// same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/typed_pointer.h"
#include "trainer/on_both.h"

namespace trainer {

class Stream;
struct Score;

/// Which random numbers decide on `words` words of 16 bits: those of random_at(seed, dropout,
/// substream) at `first` on, a counter for each half of a word. A bit is 1 where its 16 are
/// `threshold` or more.
struct KeepBits {
  std::uint64_t seed;
  std::uint32_t substream;
  std::uint64_t first;
  std::uint32_t threshold;
};

/// Of a word of keep_bits().
inline constexpr std::size_t k_keep_bits = 16;

/// Dropout: of what is kept a bit is 1, and it is multiplied by `scale`, so that the mean stays.
/// A matrix' rows begin with a word each. Null keeps all.
struct Dropped {
  const std::uint16_t* keep = nullptr;
  float scale = 1;
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
  bool is_causal = false; ///< A token sees none behind it.

  DTRAIN_ON_BOTH constexpr std::size_t width() const { return heads * depth; }
  /// Rows of probabilities, of T values each, and the words that say which are kept.
  DTRAIN_ON_BOTH constexpr std::size_t lines() const { return rows * heads * length; }
  DTRAIN_ON_BOTH constexpr std::size_t words_a_line() const {
    return (length + k_keep_bits - 1) / k_keep_bits;
  }
};

/// Queries, keys and values, or their gradients, (N, H) each, or beside each other, (N, 3·H).
template <typename Pointer>
struct Heads {
  Pointer query;
  Pointer key;
  Pointer value;
  std::size_t stride = 0; ///< From a token's to the next's; 0: they lie on end.

  DTRAIN_ON_BOTH std::size_t row(std::size_t width) const { return stride != 0 ? stride : width; }
  /// To be read.
  template <typename Other>
  operator Heads<Other>() const { // NOLINT(google-explicit-constructor)
    return {query, key, value, stride};
  }
};

/// Slots for masked tokens, M = B·K of them: `masked` (B, K) says which token of its row a slot is
/// of, -1 none.
struct MaskedShape {
  std::size_t rows;        ///< B
  std::size_t length;      ///< T
  std::size_t most_masked; ///< K
  std::size_t width;       ///< H, or V of logits
  std::size_t row = 0;     ///< Of logits, from a slot's to the next's; 0: they lie on end.

  DTRAIN_ON_BOTH constexpr std::size_t row_size() const { return row == 0 ? width : row; }
  DTRAIN_ON_BOTH constexpr std::size_t slots() const { return rows * most_masked; }
};

struct TextKernels {
  void (*keep_bits)(Stream&, const KeepBits& which, std::size_t words, std::uint16_t* to);
  /// Of n values, a multiple of 16: to = dropped x, which may be its own memory.
  void (*drop)(Stream&, std::size_t n, const Dropped& dropped, ConstTypedPointer x,
               TypedPointer to);
  /// x = dropped x + residual
  void (*drop_and_add)(Stream&, std::size_t n, const Dropped& dropped, ConstTypedPointer residual,
                       TypedPointer x);

  /// to (N, H) = the row of words (V, H) that ids (N) say, which are below V, + type (H) +
  /// positions (T, H). Without types `type` is null, and so is `dtype`.
  void (*embed)(Stream&, const TextShape& shape, const std::int32_t* ids, const float* words,
                const float* type, const float* positions, TypedPointer to);
  /// dwords (V, H), dtype (H) and dpositions (T, H) += the rows of dy (N, H) that are theirs.
  void (*embed_backward)(Stream&, const TextShape& shape, const std::int32_t* ids,
                         ConstTypedPointer dy, float* dwords, float* dtype, float* dpositions);

  /// y = (x - mean) / sqrt(variance + epsilon) · gain + shift, of each row; `moments` (rows, 2)
  /// become mean and 1 / sqrt(variance + epsilon).
  void (*norm)(Stream&, const NormShape& shape, ConstTypedPointer x, const float* gain,
               const float* shift, TypedPointer y, float* moments);
  /// dy becomes dx, or where `onto` is not null, dx is added to that, and dy becomes anything;
  /// dgain and dshift are written over, or added to with `accumulate`.
  void (*norm_backward)(Stream&, const NormShape& shape, ConstTypedPointer x, const float* moments,
                        const float* gain, bool accumulate, TypedPointer dy, TypedPointer onto,
                        float* dgain, float* dshift);

  /// Of n values that gelu was of (Matmul::Epilogue::gelu_bias): dy becomes dx.
  void (*gelu_backward)(Stream&, std::size_t n, ConstTypedPointer x, TypedPointer dy);

  /// context (N, H) = dropped p · values, p = softmax(queries · keysᵀ / √D) of each head over the
  /// first `lengths` (B) tokens of the row, at least one, and with `is_causal` over those up to its
  /// own; of the others 0. `p` (B, A, T, T) is kept for backward: before it is dropped, or what a
  /// device needs to make it again, attention_room() floats.
  void (*attention)(Stream&, const AttentionShape& shape, const std::int32_t* lengths,
                    const Dropped& dropped, const Heads<ConstTypedPointer>& of, float* p,
                    TypedPointer context);
  /// From dcontext (N, H), of the same; in `room`, as large as `p`, it is done.
  void (*attention_backward)(Stream&, const AttentionShape& shape, const std::int32_t* lengths,
                             const Dropped& dropped, const Heads<ConstTypedPointer>& of,
                             const float* p, ConstTypedPointer context, ConstTypedPointer dcontext,
                             float* room, const Heads<TypedPointer>& changes);
  /// Of what the stream's device multiplies in now.
  std::size_t (*attention_room)(const Stream&, const AttentionShape& shape);

  /// to (M, H) = the rows of x (N, H) that the slots are of; 0 where a slot has none.
  void (*gather_masked)(Stream&, const MaskedShape& shape, const std::int32_t* masked,
                        ConstTypedPointer x, TypedPointer to);
  /// The other way: writes those rows of to (N, H), and no others.
  void (*scatter_masked)(Stream&, const MaskedShape& shape, const std::int32_t* masked,
                         ConstTypedPointer from, TypedPointer to);
  /// logits (M, V) become their gradient, (softmax - onehot) · weight, with a weight of
  /// `*scale` / how many are masked of the row, or with null are used up; 0 where a slot has no
  /// token. Adds to
  /// `*score` a sample each slot that has one, right where no word's logit is larger than that of
  /// `targets` (M).
  void (*masked_cross_entropy)(Stream&, const MaskedShape& shape, const std::int32_t* masked,
                               const std::int32_t* targets, const float* scale, TypedPointer logits,
                               Score* score);
};

} // namespace trainer
