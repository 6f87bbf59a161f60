#include "trainer/device/cpu/text.h"

#include <algorithm>
#include <cmath>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/cpu/matmul.h"

namespace trainer {
namespace {

/// Queries whose scores are made and used before the next ones', while they are in the L2 cache.
constexpr std::size_t k_block = 128;

/// One head of the tokens of a row: (T, D), `stride` values from a token to the next.
template <typename Value>
struct Strip {
  Value* first;
  std::size_t stride;

  Strip from(std::size_t token) const { return {first + token * stride, stride}; }
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

  /// Calls each(lines, their keep bits) for each block of queries, which see `keys` of the tokens.
  template <typename Each>
  void for_blocks(std::size_t keys, const Dropped& dropped, const Each& each) const {
    const float scale = 1 / std::sqrt(static_cast<float>(shape_.depth));
    const std::size_t words = shape_.words_a_line();
    for (std::size_t first = 0; first < shape_.length; first += k_block) {
      const std::size_t end = std::min(first + k_block, shape_.length);
      const std::size_t seen = shape_.is_causal ? std::min(end, keys) : keys;
      Dropped own = dropped;
      if (own.keep != nullptr) {
        own.keep += (number_ * shape_.length + first) * words;
      }
      each(AttentionLines{first, end - first, shape_.length, seen, scale, shape_.is_causal}, own);
    }
  }

  /// to (lines of T) = a, from the lines' first query on, · bᵀ
  void pairs(const AttentionLines& lines, const Strip<const float>& a, const Strip<const float>& b,
             float* to) const {
    multiply(kernels_, {.m = lines.lines,
                        .n = lines.keys,
                        .k = shape_.depth,
                        .b_is_turned = true,
                        .is_rounded = true,
                        .a = a.from(lines.first).first,
                        .b = b.first,
                        .c = to,
                        .a_row = a.stride,
                        .b_row = b.stride,
                        .c_row = lines.width});
  }
  /// to, from the lines' first query on, = a (lines of T) · b
  void sums(const AttentionLines& lines, const float* a, const Strip<const float>& b,
            const Strip<float>& to) const {
    multiply(kernels_, {.m = lines.lines,
                        .n = shape_.depth,
                        .k = lines.keys,
                        .is_rounded = true,
                        .a = a,
                        .b = b.first,
                        .c = to.from(lines.first).first,
                        .a_row = lines.width,
                        .b_row = b.stride,
                        .c_row = to.stride});
  }
  /// to (T, D) = aᵀ (T, T) · b for the first `keys` tokens, which queries see; 0 for the others.
  void turned_sums(std::size_t keys, const float* a, const Strip<const float>& b,
                   const Strip<float>& to) const {
    const std::size_t block = shape_.is_causal ? k_block : keys;
    for (std::size_t key = 0; key < keys; key += block) {
      const std::size_t query = shape_.is_causal ? key : 0; // None before sees it.
      multiply(kernels_, {.m = std::min(block, keys - key),
                          .n = shape_.depth,
                          .k = shape_.length - query,
                          .a_is_turned = true,
                          .is_rounded = true,
                          .a = a + query * shape_.length + key,
                          .b = b.from(query).first,
                          .c = to.from(key).first,
                          .a_row = shape_.length,
                          .b_row = b.stride,
                          .c_row = to.stride});
    }
    for (std::size_t key = keys; key < shape_.length; ++key) {
      std::fill_n(to.from(key).first, shape_.depth, 0.0F);
    }
  }

 private:
  const CpuKernels& kernels_;
  const AttentionShape& shape_;
  std::size_t row_;
  std::size_t head_;
  std::size_t number_;
};

/// Room for so many lines of a head after dropout, if there is dropout.
float* dropped_lines(const AttentionShape& s, std::size_t lines, const Dropped& dropped) {
  return dropped.keep == nullptr ? nullptr : room_for(Room::layer, lines * s.length);
}

/// Calls each(a head, the keys that its queries see).
template <typename Each>
void for_heads(Stream& stream, const AttentionShape& s, const std::int32_t* lengths,
               const Each& each) {
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t head = 0; head < s.heads; ++head) {
      each(Head(CpuStream::kernels_of(stream), s, row, head),
           std::min(static_cast<std::size_t>(std::max(lengths[row], 1)), s.length));
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
  float* const kept = dropped_lines(s, k_block, dropped);
  const std::size_t stride = of.row(s.width());
  const AttentionParts& parts = CpuStream::kernels_of(stream).attention;
  for_heads(stream, s, lengths, [&](const Head& head, std::size_t keys) {
    head.for_blocks(keys, dropped, [&](const AttentionLines& lines, const Dropped& own) {
      float* const x = p + head.square() + lines.first * s.length;
      head.pairs(lines, head.strip(of.query, stride), head.strip(of.key, stride), x);
      parts.softmax(lines, own, x, kept);
      head.sums(lines, kept == nullptr ? x : kept, head.strip(of.value, stride),
                head.strip(context, s.width()));
    });
  });
}

std::size_t text_attention_room(const Stream& /*stream*/, const AttentionShape& s) {
  return s.lines() * s.length;
}

// With q, k, v and p of a head and d what dropout multiplies by: dv = (p·d)ᵀ·dc, dp = (dc·vᵀ)·d,
// ds = (dp - Σ p·dp)·p·scale, dq = ds·k and dk = dsᵀ·q.
void text_attention_backward(Stream& stream, const AttentionShape& s, const std::int32_t* lengths,
                             const Dropped& dropped, const Heads<const float*>& of, const float* p,
                             const float* /*context*/, const float* dcontext, float* room,
                             const Heads<float*>& changes) {
  float* const kept = dropped_lines(s, s.length, dropped);
  const std::size_t stride = of.row(s.width());
  const std::size_t to_stride = changes.row(s.width());
  const AttentionParts& parts = CpuStream::kernels_of(stream).attention;
  for_heads(stream, s, lengths, [&](const Head& head, std::size_t keys) {
    const Strip<const float> dstrip = head.strip(dcontext, s.width());
    const float* const x = p + head.square();
    head.for_blocks(keys, dropped, [&](const AttentionLines& lines, const Dropped& own) {
      const std::size_t line = lines.first * s.length;
      head.pairs(lines, dstrip, head.strip(of.value, stride), room + line);
      parts.softmax_backward(lines, own, x + line, room + line,
                             kept == nullptr ? nullptr : kept + line);
      head.sums(lines, room + line, head.strip(of.key, stride),
                head.strip(changes.query, to_stride));
    });
    head.turned_sums(keys, kept == nullptr ? x : kept, dstrip,
                     head.strip(changes.value, to_stride));
    head.turned_sums(keys, room, head.strip(of.query, stride), head.strip(changes.key, to_stride));
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
