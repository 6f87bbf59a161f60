// Attention with tensor cores, for models that compute in 16 bits. Probabilities are never stored;
// backward recomputes them from one number per line that forward leaves (Dao 2023,
// FlashAttention-2). Operands of products are rounded to bf16; all else is float32.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trainer/device/cuda/stream.h"
#include "trainer/device/text_kernels.h"

namespace trainer {

/// QueriesKeysValues of such values, const or not; no stride is 0.
template <typename Value, typename Pointer>
Heads<Value*> heads_of(const Heads<Pointer>& of, std::size_t width) {
  using Stored = std::remove_const_t<Value>;
  return {of.query.template as<Stored>(), of.key.template as<Stored>(),
          of.value.template as<Stored>(), of.row(width)};
}

/// Whether flash attention supports this shape, on a stream whose activations are bf16.
bool is_flash(const CudaStreamHandle* stream, const AttentionShape& shape);

/// As TextKernels::attention and its backward; they use one float per line of `p` and `room`.
int put_flash_attention(const CudaStreamHandle* stream, const AttentionShape& shape,
                        const std::int32_t* lengths, const Dropped& dropped,
                        const Heads<ConstTypedPointer>& of, float* p, const TypedPointer& context);
int put_flash_backward(const CudaStreamHandle* stream, const AttentionShape& shape,
                       const std::int32_t* lengths, const Dropped& dropped,
                       const Heads<ConstTypedPointer>& of, const float* p,
                       const ConstTypedPointer& context, const ConstTypedPointer& dcontext,
                       float* room, const Heads<TypedPointer>& changes);

} // namespace trainer
