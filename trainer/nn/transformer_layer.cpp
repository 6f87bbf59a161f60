#include "trainer/nn/transformer_layer.h"

#include <utility>

namespace trainer {
namespace {

Buffer floats(Device& device, std::size_t count) { return device.allocate(count, DType::f32); }

} // namespace

LayerScratch::LayerScratch(Device& device, const LayerShape& shape, std::size_t rows,
                           std::size_t length)
    : wide(floats(device, rows * length * shape.width)),
      wide2(floats(device, rows * length * shape.width)),
      inner(floats(device, rows * length * shape.inner)),
      query(floats(device, rows * length * shape.width)),
      key(floats(device, rows * length * shape.width)),
      value(floats(device, rows * length * shape.width)),
      squares(floats(device, rows * shape.heads * length * length)) {}

LayerRoom::LayerRoom(Device& device, const LayerShape& shape, std::size_t rows, std::size_t length)
    : query(floats(device, rows * length * shape.width)),
      key(floats(device, rows * length * shape.width)),
      value(floats(device, rows * length * shape.width)),
      probabilities(floats(device, rows * shape.heads * length * length)),
      context(floats(device, rows * length * shape.width)),
      sum1(floats(device, rows * length * shape.width)),
      moments1(floats(device, rows * length * 2)), a(floats(device, rows * length * shape.width)),
      u(floats(device, rows * length * shape.inner)),
      g(floats(device, rows * length * shape.inner)),
      wide(floats(device, rows * length * shape.width)),
      moments2(floats(device, rows * length * 2)) {}

TransformerLayer::TransformerLayer(const LayerContext& context, const LayerShape& shape,
                                   const DropoutRule& rule, std::uint32_t site, bool is_causal,
                                   TensorTable& tensors)
    : context_(&context), shape_(shape), is_causal_(is_causal), unit_(tensors.begin_unit()),
      first_(tensors.arena_size()), drop0_(context, rule, site), drop1_(context, rule, site + 1),
      drop2_(context, rule, site + 2) {}

AttentionShape TransformerLayer::attention(const TextPass& pass) const {
  return {pass.rows, pass.length, shape_.heads, shape_.width / shape_.heads, is_causal_};
}

void TransformerLayer::make_room(std::size_t rows, std::size_t length,
                                 std::shared_ptr<LayerRoom> room) {
  const AttentionShape attention{1, length, shape_.heads, shape_.width / shape_.heads};
  const std::size_t words = length * shape_.width / k_keep_bits;
  room_ = std::move(room);
  drop0_.make_room(rows, attention.lines() * attention.words_a_line());
  drop1_.make_room(rows, words);
  drop2_.make_room(rows, words);
  y_ = floats(context_->device, rows * length * shape_.width);
}

void TransformerLayer::draw(const TextPass& pass) {
  const AttentionShape attention = this->attention(pass);
  const std::size_t words = pass.length * shape_.width / k_keep_bits;
  drop0_.draw(pass, attention.lines() / pass.rows * attention.words_a_line());
  drop1_.draw(pass, words);
  drop2_.draw(pass, words);
}

const float* TransformerLayer::dropped(const Dropout& drop, std::size_t values, const float* change,
                                       float* to) const {
  if (drop.drawn().keep == nullptr) {
    return change;
  }
  context_->text.drop(context_->stream, values, drop.drawn(), change, to);
  return to;
}

} // namespace trainer
