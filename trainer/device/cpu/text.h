// The parts of TextKernels (device/text_kernels.h) that are the same for all sets of kernels, and
// what attention is made of beside products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/text_kernels.h"

namespace trainer {

/// A block of lines of the (T, T) scores of a head: one line a query, one value for each key.
struct AttentionLines {
  std::size_t first; ///< Query of line 0.
  std::size_t lines;
  std::size_t width; ///< T; lines are contiguous,
  std::size_t keys;  ///< but only so many values of them are there, the keys that any line sees.
  float scale;
  bool is_causal = false; ///< A query sees no key behind it.

  constexpr std::size_t keys_of(std::size_t line) const {
    return is_causal && first + line < keys ? first + line + 1 : keys;
  }
};

struct AttentionParts {
  /// x = softmax(scale · x) over the keys that a line sees, 0 for others; and with dropout
  /// to = dropped x. Both, and the keep bits, are those of the block.
  void (*softmax)(const AttentionLines& shape, const Dropped& dropped, float* x, float* to);
  /// Given x from softmax(), and in dx the gradient of its output: dx = the gradient of its input,
  /// and with dropout to = dropped x.
  void (*softmax_backward)(const AttentionLines& shape, const Dropped& dropped, const float* x,
                           float* dx, float* to);
};

void text_attention(Stream& stream, const AttentionShape& shape, const std::int32_t* lengths,
                    const Dropped& dropped, const Heads<const float*>& of, float* p,
                    float* context);
std::size_t text_attention_room(const Stream& stream, const AttentionShape& shape);
void text_attention_backward(Stream& stream, const AttentionShape& shape,
                             const std::int32_t* lengths, const Dropped& dropped,
                             const Heads<const float*>& of, const float* p, const float* context,
                             const float* dcontext, float* room, const Heads<float*>& changes);
void text_gather_masked(Stream& stream, const MaskedShape& shape, const std::int32_t* masked,
                        const float* x, float* to);
void text_scatter_masked(Stream& stream, const MaskedShape& shape, const std::int32_t* masked,
                         const float* from, float* to);

} // namespace trainer
