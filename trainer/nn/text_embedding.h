// What a text's tokens become: the sum of their words', their places' and their type's rows,
// normalised and dropped.
//
// Letters: N tokens of a pass, B rows of T, H wide.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trainer/nn/text_layers.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

class TextEmbedding {
 public:
  /// Adds a unit of its tensors, whose memory is what is read and written.
  TextEmbedding(const LayerContext& context, const std::string& name, const EmbeddingShape& shape,
                const DropoutRule& rule, std::uint32_t site, TensorTable& tensors)
      : context_(&context), shape_(shape), unit_(tensors.begin_unit()),
        norm_(context, name + ".LayerNorm", shape.width, shape.epsilon, tensors),
        types_(add(tensors, name + ".token_type_embeddings.weight", shape.types)),
        positions_(add(tensors, name + ".position_embeddings.weight", shape.positions)),
        words_(add(tensors, name + ".word_embeddings.weight", shape.vocabulary)),
        dropout_(context, rule, site) {}

  std::size_t unit() const { return unit_; }
  UnitMemory words(const UnitMemory& memory) const { return memory.from(words_); }
  void initialize(std::span<float> arena) const { norm_.initialize(arena); }

  void make_room(std::size_t rows, std::size_t length) {
    Device& device = context_->device;
    sum_ = device.allocate(rows * length * shape_.width, DType::f32);
    moments_ = device.allocate(rows * length * 2, DType::f32);
    x_ = device.allocate(rows * length * shape_.width, DType::f32);
    dropout_.make_room(rows, length * shape_.width / k_keep_bits);
  }

  /// (N, H)
  const float* forward(const UnitMemory& memory, const TextPass& pass, const std::int32_t* ids) {
    const float* const parameters = memory.weights;
    context_->text.embed(context_->stream, {pass.rows, pass.length, shape_.width}, ids,
                         parameters + words_, parameters + types_, parameters + first_position(),
                         sum_.data());
    norm_.forward(memory, pass.tokens(), sum_.data(), x_.data(), moments_.data());
    dropout_.draw(pass, pass.length * shape_.width / k_keep_bits);
    drop(pass, x_.data());
    return x_.data();
  }

  /// `change` is used up. What the words' gradient holds is added to.
  void backward(const UnitMemory& memory, const TextPass& pass, const std::int32_t* ids,
                float* change) {
    float* const gradients = memory.gradients;
    drop(pass, change);
    norm_.backward(memory, pass.tokens(), sum_.data(), moments_.data(), pass.accumulate, change);
    if (!pass.accumulate) {
      context_->stream.clear(gradients + types_, shape_.types * shape_.width * sizeof(float));
      context_->stream.clear(gradients + positions_,
                             shape_.positions * shape_.width * sizeof(float));
    }
    context_->text.embed_backward(context_->stream, {pass.rows, pass.length, shape_.width}, ids,
                                  change, gradients + words_, gradients + types_,
                                  gradients + first_position());
  }

 private:
  std::size_t add(TensorTable& tensors, const std::string& name, std::size_t rows) const {
    return tensors[tensors.add(name, {rows, shape_.width})].in_unit;
  }
  /// Of a text's first token, in the unit.
  std::size_t first_position() const { return positions_ + shape_.first_position * shape_.width; }
  void drop(const TextPass& pass, float* values) const {
    if (dropout_.drawn().keep != nullptr) {
      context_->text.drop(context_->stream, pass.tokens() * shape_.width, dropout_.drawn(), values,
                          values);
    }
  }

  const LayerContext* context_;
  EmbeddingShape shape_;
  std::size_t unit_;
  LayerNorm norm_; ///< In the order of the arenas.
  std::size_t types_;
  std::size_t positions_;
  std::size_t words_;
  Dropout dropout_;
  Buffer sum_{0};     ///< (N, H): before the norm,
  Buffer moments_{0}; ///< (N, 2)
  Buffer x_{0};       ///< and behind it.
};

} // namespace trainer
