// Embeds tokens: the sum of the rows of word and position, and of the type if the model has types;
// then a norm if the model has one, and dropout.
//
// Letters: N tokens of a pass, B rows of T, H wide.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/nn/text_layers.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

class TextEmbedding {
 public:
  /// Adds its tensors as a unit.
  TextEmbedding(const LayerContext& context, const EmbeddingShape& shape, const DropoutRule& rule,
                std::uint32_t site, TensorTable& tensors)
      : context_(&context), shape_(shape), unit_(tensors.begin_unit()),
        dropout_(context, rule, site) {
    if (!shape.norm.empty()) { // In the order in which backward finishes them.
      norm_.emplace(context, shape.norm, shape.width, shape.epsilon, tensors);
    }
    if (!shape.types.empty()) {
      types_ = add(tensors, shape.types, shape.type_rows);
    }
    positions_ = add(tensors, shape.positions, shape.position_rows);
    words_ = add(tensors, shape.words, shape.vocabulary);
  }

  std::size_t unit() const { return unit_; }
  UnitMemory words(const UnitMemory& memory) const { return memory.from(words_); }
  void initialize(std::span<float> arena) const {
    if (norm_) {
      norm_->initialize(arena);
    }
  }

  void make_room(std::size_t rows, std::size_t length) {
    Device& device = context_->device;
    const std::size_t tokens = rows * length;
    sum_ = context_->activations(norm_ ? tokens * shape_.width : 0);
    moments_ = device.allocate(norm_ ? tokens * 2 : 0, DType::f32);
    x_ = context_->activations(tokens * shape_.width);
    dropout_.make_room(rows, length * keep_words(shape_.width));
  }

  /// Draws what passes over these rows drop, of so many tokens each.
  void draw(const Batch& batch, std::size_t length) {
    dropout_.draw(batch, length * keep_words(shape_.width));
  }

  /// (N, H)
  ConstTypedPointer forward(const UnitMemory& memory, const TextPass& pass,
                            const std::int32_t* ids) {
    const float* const parameters = memory.weights;
    context_->text.embed(context_->stream, {pass.rows, pass.length, shape_.width}, ids,
                         parameters + words_, types_ ? parameters + *types_ : nullptr,
                         parameters + first_position(), norm_ ? sum_ : x_);
    if (norm_) {
      norm_->forward(memory, pass.tokens(), sum_, x_, moments_.data());
    }
    drop(pass, x_);
    return x_;
  }

  /// Overwrites `change`. Adds to the gradient of the words.
  void backward(const UnitMemory& memory, const TextPass& pass, const std::int32_t* ids,
                TypedPointer change) {
    float* const gradients = memory.gradients;
    drop(pass, change);
    if (norm_) {
      norm_->backward(memory, pass.tokens(), sum_, moments_.data(), pass.accumulate, change);
    }
    const std::size_t row = shape_.width * sizeof(float);
    if (!pass.accumulate) {
      context_->stream.clear(gradients + positions_, shape_.position_rows * row);
      if (types_) {
        context_->stream.clear(gradients + *types_, shape_.type_rows * row);
      }
    }
    context_->text.embed_backward(
        context_->stream, {pass.rows, pass.length, shape_.width}, ids, change, gradients + words_,
        types_ ? gradients + *types_ : nullptr, gradients + first_position());
  }

 private:
  std::size_t add(TensorTable& tensors, const std::string& name, std::size_t rows) const {
    return tensors[tensors.add_embedding(name + ".weight", rows, shape_.width)].in_unit;
  }
  /// Offset in the unit of the position of a text's first token.
  std::size_t first_position() const { return positions_ + shape_.first_position * shape_.width; }
  void drop(const TextPass& pass, TypedPointer values) const {
    if (const Dropped drawn = dropout_.drawn(pass); drawn.keep != nullptr) {
      context_->text.drop(context_->stream, {pass.tokens(), shape_.width}, drawn, values, values);
    }
  }

  const LayerContext* context_;
  EmbeddingShape shape_;
  std::size_t unit_;
  std::optional<LayerNorm> norm_;
  std::optional<std::size_t> types_; ///< Offsets in the unit:
  std::size_t positions_ = 0;
  std::size_t words_ = 0;
  Dropout dropout_;
  Buffer sum_{0};     ///< (N, H): before the norm,
  Buffer moments_{0}; ///< (N, 2)
  Buffer x_{0};       ///< and after it.
};

} // namespace trainer
