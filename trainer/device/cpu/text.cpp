#include "trainer/device/cpu/text.h"

#include <algorithm>
#include <cmath>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/cpu/matmul.h"

namespace trainer {
namespace {

/// One head of the tokens of a row: (T, D), `stride` values from a token to the next.
template <typename Value>
struct Strip {
  Value* first;
  std::size_t stride;
};

/// A head of a row of tokens.
class Head {
 public:
  Head(const CpuKernels& kernels, const AttentionShape& shape, std::size_t row, std::size_t head)
      : kernels_(kernels), shape_(shape), row_(row), head_(head),
        number_(row * shape.heads + head) {}

  template <typename Value>
  Strip<Value> strip(Value* all, std::size_t stride) const {
    return {all + row_ * shape_.length * stride + head_ * shape_.depth, stride};
  }
  std::size_t square() const { return number_ * shape_.length * shape_.length; }
  Dropped of(const Dropped& dropped) const {
    return {dropped.keep == nullptr
                ? nullptr
                : dropped.keep + number_ * shape_.length * shape_.words_a_line(),
            dropped.scale};
  }

  /// to (T, T) = a (T, D) · bᵀ
  void pairs(const Strip<const float>& a, const Strip<const float>& b, float* to) const {
    multiply(kernels_, {.m = shape_.length,
                        .n = shape_.length,
                        .k = shape_.depth,
                        .b_is_turned = true,
                        .is_rounded = true,
                        .a = a.first,
                        .b = b.first,
                        .c = to,
                        .a_row = a.stride,
                        .b_row = b.stride});
  }
  /// to (T, D) = a (T, T), or its transpose, · b
  void sums(const float* a, bool is_turned, const Strip<const float>& b,
            const Strip<float>& to) const {
    multiply(kernels_, {.m = shape_.length,
                        .n = shape_.depth,
                        .k = shape_.length,
                        .a_is_turned = is_turned,
                        .is_rounded = true,
                        .a = a,
                        .b = b.first,
                        .c = to.first,
                        .b_row = b.stride,
                        .c_row = to.stride});
  }

 private:
  const CpuKernels& kernels_;
  const AttentionShape& shape_;
  std::size_t row_;
  std::size_t head_;
  std::size_t number_;
};

AttentionLines lines_of(const AttentionShape& s, std::size_t keys) {
  return {s.length, s.length, keys, 1 / std::sqrt(static_cast<float>(s.depth)), s.is_causal};
}

/// The lines of a head after dropout, if there is dropout.
float* dropped_lines(const AttentionShape& s, const Dropped& dropped) {
  return dropped.keep == nullptr ? nullptr : room_for(Room::layer, s.length * s.length);
}

template <typename Each>
void for_heads(Stream& stream, const AttentionShape& s, const Each& each) {
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t head = 0; head < s.heads; ++head) {
      each(row, Head(CpuStream::kernels_of(stream), s, row, head));
    }
  }
}

/// Calls `each` with each slot that holds a token, and with the number of that token.
template <typename Each>
void for_slots(const MaskedShape& s, const std::int32_t* masked, const Each& each) {
  for (std::size_t slot = 0; slot < s.slots(); ++slot) {
    if (masked[slot] >= 0) {
      each(slot, slot / s.most_masked * s.length + static_cast<std::size_t>(masked[slot]));
    }
  }
}

} // namespace

void text_attention(Stream& stream, const AttentionShape& s, const std::int32_t* lengths,
                    const Dropped& dropped, const Heads<const float*>& of, float* p,
                    float* context) {
  float* const kept = dropped_lines(s, dropped);
  const std::size_t stride = of.row(s.width());
  for_heads(stream, s, [&](std::size_t row, const Head& head) {
    float* const x = p + head.square();
    head.pairs(head.strip(of.query, stride), head.strip(of.key, stride), x);
    CpuStream::kernels_of(stream).attention.softmax(
        lines_of(s, static_cast<std::size_t>(std::max(lengths[row], 1))), head.of(dropped), x,
        kept);
    head.sums(kept == nullptr ? x : kept, false, head.strip(of.value, stride),
              head.strip(context, s.width()));
  });
}

// With q, k, v and p of a head and d what dropout multiplies by: dv = (p·d)ᵀ·dc, dp = (dc·vᵀ)·d,
// ds = (dp - Σ p·dp)·p·scale, dq = ds·k and dk = dsᵀ·q.
std::size_t text_attention_room(const Stream& /*stream*/, const AttentionShape& s) {
  return s.lines() * s.length;
}

void text_attention_backward(Stream& stream, const AttentionShape& s,
                             const std::int32_t* /*lengths*/, const Dropped& dropped,
                             const Heads<const float*>& of, const float* p,
                             const float* /*context*/, const float* dcontext, float* room,
                             const Heads<float*>& changes) {
  float* const kept = dropped_lines(s, dropped);
  const std::size_t stride = of.row(s.width());
  const std::size_t to_stride = changes.row(s.width());
  for_heads(stream, s, [&](std::size_t /*row*/, const Head& head) {
    const Strip<const float> dstrip = head.strip(dcontext, s.width());
    const float* const x = p + head.square();
    head.pairs(dstrip, head.strip(of.value, stride), room);
    CpuStream::kernels_of(stream).attention.softmax_backward(lines_of(s, s.length),
                                                             head.of(dropped), x, room, kept);
    head.sums(room, false, head.strip(of.key, stride), head.strip(changes.query, to_stride));
    head.sums(kept == nullptr ? x : kept, true, dstrip, head.strip(changes.value, to_stride));
    head.sums(room, true, head.strip(of.query, stride), head.strip(changes.key, to_stride));
  });
}

void text_gather_masked(Stream& /*stream*/, const MaskedShape& s, const std::int32_t* masked,
                        const float* x, float* to) {
  std::fill_n(to, s.slots() * s.width, 0.0F);
  for_slots(s, masked, [&](std::size_t slot, std::size_t token) {
    std::copy_n(x + token * s.width, s.width, to + slot * s.width);
  });
}

void text_scatter_masked(Stream& /*stream*/, const MaskedShape& s, const std::int32_t* masked,
                         const float* from, float* to) {
  for_slots(s, masked, [&](std::size_t slot, std::size_t token) {
    std::copy_n(from + slot * s.width, s.width, to + token * s.width);
  });
}

} // namespace trainer
