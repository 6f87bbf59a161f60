#include "trainer/device/cpu/text.h"

#include <algorithm>
#include <cmath>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/cpu/matmul.h"

namespace trainer {
namespace {

/// A head of a row of tokens: what it reads and writes lies in rows of H, its own lines on end.
class Head {
 public:
  Head(const CpuKernels& kernels, const AttentionShape& shape, std::size_t row, std::size_t head)
      : kernels_(kernels), shape_(shape),
        at_(row * shape.length * shape.width() + head * shape.depth),
        number_(row * shape.heads + head) {}

  std::size_t at() const { return at_; } ///< In what is (N, H).
  std::size_t square() const { return number_ * shape_.length * shape_.length; }
  Dropped of(const Dropped& dropped) const {
    return {dropped.keep == nullptr
                ? nullptr
                : dropped.keep + number_ * shape_.length * shape_.words_a_line(),
            dropped.scale};
  }

  /// to (T, T) = a (T, D) · bᵀ
  void pairs(const float* a, const float* b, float* to) const {
    multiply(kernels_, {.m = shape_.length,
                        .n = shape_.length,
                        .k = shape_.depth,
                        .b_is_turned = true,
                        .is_rounded = true,
                        .a = a,
                        .b = b,
                        .c = to,
                        .a_row = shape_.width(),
                        .b_row = shape_.width()});
  }
  /// to (T, D) = a (T, T), or its transpose, · b
  void sums(const float* a, bool is_turned, const float* b, float* to) const {
    multiply(kernels_, {.m = shape_.length,
                        .n = shape_.depth,
                        .k = shape_.length,
                        .a_is_turned = is_turned,
                        .is_rounded = true,
                        .a = a,
                        .b = b,
                        .c = to,
                        .b_row = shape_.width(),
                        .c_row = shape_.width()});
  }

 private:
  const CpuKernels& kernels_;
  const AttentionShape& shape_;
  std::size_t at_;
  std::size_t number_;
};

AttentionLines lines_of(const AttentionShape& s, std::size_t keys) {
  return {s.length, s.length, keys, 1 / std::sqrt(static_cast<float>(s.depth)), s.is_causal};
}

/// A head's lines as they are dropped, where anything is.
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

/// Calls `each` with a slot that has a token, and with that one's number.
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
  for_heads(stream, s, [&](std::size_t row, const Head& head) {
    float* const x = p + head.square();
    head.pairs(of.query + head.at(), of.key + head.at(), x);
    CpuStream::kernels_of(stream).attention.softmax(
        lines_of(s, static_cast<std::size_t>(std::max(lengths[row], 1))), head.of(dropped), x,
        kept);
    head.sums(kept == nullptr ? x : kept, false, of.value + head.at(), context + head.at());
  });
}

// With q, k, v and p of a head and d what dropout multiplies by: dv = (p·d)ᵀ·dc, dp = (dc·vᵀ)·d,
// ds = (dp - Σ p·dp)·p·scale, dq = ds·k and dk = dsᵀ·q.
void text_attention_backward(Stream& stream, const AttentionShape& s,
                             const std::int32_t* /*lengths*/, const Dropped& dropped,
                             const Heads<const float*>& of, const float* p,
                             const float* /*context*/, const float* dcontext, float* room,
                             const Heads<float*>& changes) {
  float* const kept = dropped_lines(s, dropped);
  for_heads(stream, s, [&](std::size_t /*row*/, const Head& head) {
    const std::size_t at = head.at();
    const float* const x = p + head.square();
    head.pairs(dcontext + at, of.value + at, room);
    CpuStream::kernels_of(stream).attention.softmax_backward(lines_of(s, s.length),
                                                             head.of(dropped), x, room, kept);
    head.sums(room, false, of.key + at, changes.query + at);
    head.sums(kept == nullptr ? x : kept, true, dcontext + at, changes.value + at);
    head.sums(room, true, of.query + at, changes.key + at);
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
