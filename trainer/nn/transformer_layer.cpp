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

void TransformerLayer::make_room(std::size_t rows, std::size_t length,
                                 std::shared_ptr<LayerRoom> room) {
  const AttentionShape attention{1, length, shape_.heads, shape_.width / shape_.heads};
  const std::size_t words = length * keep_words(shape_.width);
  room_ = std::move(room);
  drop0_.make_room(rows, attention.lines() * attention.words_a_line());
  drop1_.make_room(rows, words);
  drop2_.make_room(rows, words);
  y_ = context_->activations(rows * length * shape_.width);
}

void TransformerLayer::draw(const TextPass& pass) {
  const AttentionShape attention = this->attention(pass);
  const std::size_t words = pass.length * keep_words(shape_.width);
  drop0_.draw(pass, attention.lines() / pass.rows * attention.words_a_line());
  drop1_.draw(pass, words);
  drop2_.draw(pass, words);
}

ConstTypedPointer TransformerLayer::dropped(const Dropout& drop, std::size_t tokens,
                                            ConstTypedPointer change, TypedPointer to) const {
  if (drop.drawn().keep == nullptr) {
    return change;
  }
  context_->text.drop(context_->stream, {tokens, shape_.width}, drop.drawn(), change, to);
  return to;
}

} // namespace trainer
