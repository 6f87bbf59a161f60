#include "trainer/nn/transformer_layer.h"

#include <utility>

namespace trainer {
namespace {

Buffer floats(const LayerContext& model, std::size_t count) {
  return model.device.allocate(count, DType::f32);
}

Buffer attention_room(const LayerContext& model, const LayerShape& shape, std::size_t rows,
                      std::size_t length) {
  return floats(model, model.text.attention_room(
                           model.stream, {rows, length, shape.heads, shape.width / shape.heads}));
}

} // namespace

LayerScratch::LayerScratch(const LayerContext& model, const LayerShape& shape, std::size_t rows,
                           std::size_t length)
    : wide(model.activations(rows * length * shape.width)),
      wide2(model.activations(rows * length * shape.width)),
      inner(model.activations(rows * length * shape.inner)),
      heads(model.activations(rows * length * 3 * shape.width)),
      squares(attention_room(model, shape, rows, length)) {}

LayerRoom::LayerRoom(const LayerContext& model, const LayerShape& shape, std::size_t rows,
                     std::size_t length)
    : heads(model.activations(rows * length * 3 * shape.width)),
      probabilities(attention_room(model, shape, rows, length)),
      context(model.activations(rows * length * shape.width)),
      sum1(model.activations(rows * length * shape.width)),
      moments1(floats(model, rows * length * 2)), a(model.activations(rows * length * shape.width)),
      u(model.activations(rows * length * shape.inner)),
      g(model.activations(rows * length * shape.inner)),
      wide(model.activations(rows * length * shape.width)),
      moments2(floats(model, rows * length * 2)) {}

TransformerLayer::TransformerLayer(const LayerContext& context, const LayerShape& shape,
                                   const DropoutRule& rule, std::uint32_t site, bool is_causal,
                                   TensorTable& tensors)
    : context_(&context), shape_(shape), is_causal_(is_causal), unit_(tensors.begin_unit()),
      first_(tensors.arena_size()), drop0_(context, rule, site), drop1_(context, rule, site + 1),
      drop2_(context, rule, site + 2) {}

AttentionShape TransformerLayer::attention(const TextPass& pass) const {
  return {pass.rows, pass.length, shape_.heads, shape_.width / shape_.heads, is_causal_};
}

Heads<TypedPointer> TransformerLayer::heads(const Buffer& of) const {
  const TypedPointer first = of;
  return {first, first + shape_.width, first + 2 * shape_.width, 3 * shape_.width};
}

std::size_t TransformerLayer::attention_words(std::size_t length) const {
  const AttentionShape row{1, length, shape_.heads, shape_.width / shape_.heads, is_causal_};
  return row.lines() * row.words_a_line();
}

void TransformerLayer::make_room(std::size_t rows, std::size_t length,
                                 std::shared_ptr<LayerRoom> room) {
  const std::size_t words = length * keep_words(shape_.width);
  room_ = std::move(room);
  drop0_.make_room(rows, attention_words(length));
  drop1_.make_room(rows, words);
  drop2_.make_room(rows, words);
  y_ = context_->activations(rows * length * shape_.width);
}

void TransformerLayer::draw(const Batch& batch, std::size_t length) {
  drop0_.draw(batch, attention_words(length));
  drop1_.draw(batch, length * keep_words(shape_.width));
  drop2_.draw(batch, length * keep_words(shape_.width));
}

ConstTypedPointer TransformerLayer::dropped(const Dropout& drop, const TextPass& pass,
                                            ConstTypedPointer change, TypedPointer to) const {
  const Dropped drawn = drop.drawn(pass);
  if (drawn.keep == nullptr) {
    return change;
  }
  context_->text.drop(context_->stream, {pass.tokens(), shape_.width}, drawn, change, to);
  return to;
}

} // namespace trainer
