#include "trainer/nn/cpu/attention.h"

#include <algorithm>
#include <cmath>

namespace trainer {

Attention::Attention(std::size_t width, std::size_t heads, const DropoutRule& rule,
                     std::uint32_t site, const CpuKernels& kernels)
    : width_(width), heads_(heads), depth_(width / heads),
      scale_(1 / std::sqrt(static_cast<float>(depth_))), kernels_(&kernels),
      dropout_(rule, site, kernels) {}

AttentionRoom::AttentionRoom(std::size_t rows, std::size_t length, std::size_t width,
                             std::size_t heads)
    : kept(length, padded(length)), changes(length, padded(length)),
      packed(padded(length) * (width / heads)),
      probabilities(rows * heads * length * kept.stride()) {}

float* Attention::probabilities(const TextPass& pass, std::size_t row, std::size_t head) const {
  return room_->probabilities.data() + (row * heads_ + head) * pass.length * room_->kept.stride();
}

Dropped Attention::dropped(const TextPass& pass, std::size_t row, std::size_t head) const {
  return dropout_.at((row * heads_ + head) * pass.length * room_->kept.width() / k_panel);
}

void Attention::forward(const TextPass& pass, const Matrix& qkv, const Matrix& context) {
  const std::size_t length = pass.length;
  const RowShape square = room_->kept.shape(length); // (T, T)
  dropout_.draw(pass, heads_ * length * square.width / k_panel);
  for (std::size_t row = 0; row < pass.rows; ++row) {
    for (std::size_t head = 0; head < heads_; ++head) {
      const float* query = qkv.row(row * length) + head * depth_; // (T, D)
      const float* key = query + width_;
      const float* value = key + width_;
      float* p = probabilities(pass, row, head);
      kernels_->transformer.pack_transposed({length, depth_, qkv.stride()}, key,
                                            room_->packed.data());
      kernels_->product({.m = length, // p (T, T) = Q·Kᵀ
                         .k = depth_,
                         .panels = square.width / k_panel,
                         .a = query,
                         .a_row = qkv.stride(),
                         .b = room_->packed.data(),
                         .c = p,
                         .c_row = square.stride,
                         .c_panel = k_panel});
      const Dropped drops = dropped(pass, row, head);
      float* kept = drops.keep == nullptr ? p : room_->kept.data();
      const auto keys = static_cast<std::size_t>(std::max(pass.lengths[row], 1));
      kernels_->transformer.softmax(square, keys, scale_, drops, p, kept);
      kernels_->product({.m = length, // context (T, D) = p·V
                         .k = length,
                         .panels = depth_ / k_panel,
                         .a = kept,
                         .a_row = square.stride,
                         .b = value,
                         .c = context.row(row * length) + head * depth_,
                         .c_row = context.stride(),
                         .c_panel = k_panel,
                         .b_row = qkv.stride(),
                         .b_panel = k_panel});
    }
  }
}

void Attention::backward(const TextPass& pass, const Matrix& qkv, const Matrix& change,
                         const Matrix& dqkv) {
  const std::size_t length = pass.length;
  const RowShape square = room_->kept.shape(length);
  // c (T, D) = a (T, T)·b (T, D), or of its transpose.
  const auto multiply = [&](const float* a, bool transposed, const float* b, std::size_t b_row,
                            float* c) {
    kernels_->product({.m = length,
                       .k = length,
                       .panels = depth_ / k_panel,
                       .a = a,
                       .a_row = transposed ? 1 : square.stride,
                       .a_column = transposed ? square.stride : 1,
                       .b = b,
                       .c = c,
                       .c_row = dqkv.stride(),
                       .c_panel = k_panel,
                       .b_row = b_row,
                       .b_panel = k_panel});
  };
  for (std::size_t row = 0; row < pass.rows; ++row) {
    for (std::size_t head = 0; head < heads_; ++head) {
      const float* query = qkv.row(row * length) + head * depth_;
      const float* key = query + width_;
      const float* value = key + width_;
      const float* of_context = change.row(row * length) + head * depth_;
      float* of_query = dqkv.row(row * length) + head * depth_;
      float* p = probabilities(pass, row, head);
      const Dropped drops = dropped(pass, row, head);
      float* kept = drops.keep == nullptr ? p : room_->kept.data();
      if (kept != p) {
        kernels_->transformer.drop(square, drops, p, kept);
      }
      multiply(kept, true, of_context, change.stride(), of_query + 2 * width_);
      kernels_->transformer.pack_transposed({length, depth_, qkv.stride()}, value,
                                            room_->packed.data());
      kernels_->product({.m = length, // (T, T) = the change of context·Vᵀ
                         .k = depth_,
                         .panels = square.width / k_panel,
                         .a = of_context,
                         .a_row = change.stride(),
                         .b = room_->packed.data(),
                         .c = room_->changes.data(),
                         .c_row = square.stride,
                         .c_panel = k_panel});
      kernels_->transformer.softmax_backward(square, scale_, drops, p, room_->changes.data());
      multiply(room_->changes.data(), false, key, qkv.stride(), of_query);
      multiply(room_->changes.data(), true, query, qkv.stride(), of_query + width_);
    }
  }
}

} // namespace trainer
