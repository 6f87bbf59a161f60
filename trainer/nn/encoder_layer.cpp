#include "trainer/nn/encoder_layer.h"

#include <array>
#include <utility>

namespace trainer {
namespace {

Buffer floats(Device& device, std::size_t count) { return device.allocate(count, DType::f32); }

} // namespace

EncoderScratch::EncoderScratch(Device& device, const EncoderShape& shape, std::size_t rows,
                               std::size_t length)
    : wide(floats(device, rows * length * shape.width)),
      wide2(floats(device, rows * length * shape.width)),
      inner(floats(device, rows * length * shape.inner)),
      query(floats(device, rows * length * shape.width)),
      key(floats(device, rows * length * shape.width)),
      value(floats(device, rows * length * shape.width)),
      squares(floats(device, rows * shape.heads * length * length)) {}

EncoderRoom::EncoderRoom(Device& device, const EncoderShape& shape, std::size_t rows,
                         std::size_t length)
    : query(floats(device, rows * length * shape.width)),
      key(floats(device, rows * length * shape.width)),
      value(floats(device, rows * length * shape.width)),
      probabilities(floats(device, rows * shape.heads * length * length)),
      context(floats(device, rows * length * shape.width)),
      sum1(floats(device, rows * length * shape.width)),
      moments1(floats(device, rows * length * 2)), a(floats(device, rows * length * shape.width)),
      u(floats(device, rows * length * shape.inner)),
      g(floats(device, rows * length * shape.inner)),
      sum2(floats(device, rows * length * shape.width)),
      moments2(floats(device, rows * length * 2)) {}

EncoderLayer::EncoderLayer(const LayerContext& context, const std::string& name,
                           const EncoderShape& shape, const DropoutRule& rule, std::uint32_t site,
                           TensorTable& tensors)
    : context_(&context), shape_(shape), unit_(tensors.begin_unit()), first_(tensors.arena_size()),
      norm2_(context, name + ".output.LayerNorm", shape.width, shape.epsilon, tensors),
      out_(context, name + ".output.dense", shape.inner, shape.width, tensors),
      in_(context, name + ".intermediate.dense", shape.width, shape.inner, tensors),
      norm1_(context, name + ".attention.output.LayerNorm", shape.width, shape.epsilon, tensors),
      mix_(context, name + ".attention.output.dense", shape.width, shape.width, tensors),
      value_(context, name + ".attention.self.value", shape.width, shape.width, tensors),
      key_(context, name + ".attention.self.key", shape.width, shape.width, tensors),
      query_(context, name + ".attention.self.query", shape.width, shape.width, tensors),
      drop0_(context, rule, site), drop1_(context, rule, site + 1),
      drop2_(context, rule, site + 2) {}

void EncoderLayer::initialize(std::span<float> arena) const {
  norm1_.initialize(arena);
  norm2_.initialize(arena);
}

void EncoderLayer::rehearse(ParameterOwner& owner) const {
  for (const Linear* layer : {&out_, &in_, &mix_, &value_, &key_, &query_}) {
    finish(*layer, owner);
  }
}

AttentionShape EncoderLayer::attention(const TextPass& pass) const {
  return {pass.rows, pass.length, shape_.heads, shape_.width / shape_.heads};
}

void EncoderLayer::make_room(std::size_t rows, std::size_t length,
                             std::shared_ptr<EncoderRoom> room) {
  const AttentionShape attention{1, length, shape_.heads, shape_.width / shape_.heads};
  const std::size_t words = length * shape_.width / k_keep_bits;
  room_ = std::move(room);
  drop0_.make_room(rows, attention.lines() * attention.words_a_line());
  drop1_.make_room(rows, words);
  drop2_.make_room(rows, words);
  y_ = floats(context_->device, rows * length * shape_.width);
}

const float* EncoderLayer::forward(const UnitMemory& memory, const TextPass& pass, const float* x) {
  const TextKernels& text = context_->text;
  Stream& stream = context_->stream;
  const EncoderRoom& room = *room_;
  const std::size_t n = pass.tokens();
  const std::size_t wide = n * shape_.width;
  const std::size_t words = pass.length * shape_.width / k_keep_bits;
  const AttentionShape attention = this->attention(pass);
  drop0_.draw(pass, attention.lines() / pass.rows * attention.words_a_line());
  drop1_.draw(pass, words);
  drop2_.draw(pass, words);

  query_.forward(memory, n, x, room.query.data());
  key_.forward(memory, n, x, room.key.data());
  value_.forward(memory, n, x, room.value.data());
  text.attention(stream, attention, pass.lengths, drop0_.drawn(),
                 {room.query.data(), room.key.data(), room.value.data()}, room.probabilities.data(),
                 room.context.data());
  mix_.forward(memory, n, room.context.data(), room.sum1.data());
  text.drop_and_add(stream, wide, drop1_.drawn(), x, room.sum1.data());
  norm1_.forward(memory, n, room.sum1.data(), room.a.data(), room.moments1.data());
  in_.forward_gelu(memory, n, room.a.data(), room.u.data(), room.g.data());
  out_.forward(memory, n, room.g.data(), room.sum2.data());
  text.drop_and_add(stream, wide, drop2_.drawn(), room.a.data(), room.sum2.data());
  norm2_.forward(memory, n, room.sum2.data(), y_.data(), room.moments2.data());
  return y_.data();
}

const float* EncoderLayer::dropped(const Dropout& drop, std::size_t values, const float* change,
                                   float* to) const {
  if (drop.drawn().keep == nullptr) {
    return change;
  }
  context_->text.drop(context_->stream, values, drop.drawn(), change, to);
  return to;
}

void EncoderLayer::backward(const UnitMemory& memory, const TextPass& pass, const float* x,
                            float* change, const EncoderScratch& scratch, ParameterOwner& owner) {
  const TextKernels& text = context_->text;
  Stream& stream = context_->stream;
  const EncoderRoom& room = *room_;
  const bool more = pass.accumulate;
  const std::size_t n = pass.tokens();
  const std::size_t wide = n * shape_.width;
  float* const inner = scratch.inner.data();

  norm2_.backward(memory, n, room.sum2.data(), room.moments2.data(), more, change);
  const float* dy = dropped(drop2_, wide, change, scratch.wide.data());
  out_.backward_weight(memory, n, room.g.data(), dy, more);
  finish(out_, owner);
  out_.backward_gelu(memory, n, dy, room.u.data(), inner);
  in_.backward_weight(memory, n, room.a.data(), inner, more);
  finish(in_, owner);
  in_.backward_input(memory, n, inner, true, change);

  norm1_.backward(memory, n, room.sum1.data(), room.moments1.data(), more, change);
  dy = dropped(drop1_, wide, change, scratch.wide.data());
  mix_.backward_weight(memory, n, room.context.data(), dy, more);
  finish(mix_, owner);
  mix_.backward_input(memory, n, dy, false, scratch.wide2.data());
  text.attention_backward(stream, attention(pass), drop0_.drawn(),
                          {room.query.data(), room.key.data(), room.value.data()},
                          room.probabilities.data(), scratch.wide2.data(), scratch.squares.data(),
                          {scratch.query.data(), scratch.key.data(), scratch.value.data()});
  const std::array<std::pair<const Linear*, const Buffer*>, 3> parts = {
      {{&value_, &scratch.value}, {&key_, &scratch.key}, {&query_, &scratch.query}}};
  for (const auto& [part, of_part] : parts) {
    part->backward_weight(memory, n, x, of_part->data(), more);
    part->backward_input(memory, n, of_part->data(), true, change);
    finish(*part, owner);
  }
}

} // namespace trainer
