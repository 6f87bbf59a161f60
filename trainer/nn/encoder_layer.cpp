#include <array>
#include <utility>

#include "trainer/nn/transformer_layer.h"

namespace trainer {
namespace {

class EncoderLayer final : public TransformerLayer {
 public:
  EncoderLayer(const LayerContext& context, const std::string& name, const LayerShape& shape,
               const DropoutRule& rule, std::uint32_t site, TensorTable& tensors)
      : TransformerLayer(context, shape, rule, site, false, tensors),
        norm2_(context, name + ".output.LayerNorm", shape.width, shape.epsilon, tensors),
        out_(context, name + ".output.dense", shape.inner, shape.width, tensors),
        in_(context, name + ".intermediate.dense", shape.width, shape.inner, tensors),
        norm1_(context, name + ".attention.output.LayerNorm", shape.width, shape.epsilon, tensors),
        mix_(context, name + ".attention.output.dense", shape.width, shape.width, tensors),
        value_(context, name + ".attention.self.value", shape.width, shape.width, tensors),
        key_(context, name + ".attention.self.key", shape.width, shape.width, tensors),
        query_(context, name + ".attention.self.query", shape.width, shape.width, tensors) {}

  void initialize(std::span<float> arena) const override {
    norm1_.initialize(arena);
    norm2_.initialize(arena);
  }

  ConstTypedPointer forward(const UnitMemory& memory, const TextPass& pass,
                            ConstTypedPointer x) override {
    const TextKernels& text = context_->text;
    Stream& stream = context_->stream;
    const LayerRoom& room = *room_;
    const std::size_t n = pass.tokens();

    const Heads<TypedPointer> of = heads(room.heads);
    query_.forward(memory, n, x, of.query, of.stride);
    key_.forward(memory, n, x, of.key, of.stride);
    value_.forward(memory, n, x, of.value, of.stride);
    text.attention(stream, attention(pass), pass.lengths, drop0_.drawn(pass), of,
                   room.probabilities.data(), room.context);
    const Residual left1 =
        mix_.forward_before(memory, n, room.context, {drop1_.drawn(pass), x}, room.sum1);
    norm1_.forward(memory, n, left1, room.sum1, room.a, room.moments1.data());
    in_.forward_gelu(memory, n, room.a, room.u, room.g);
    const Residual left2 =
        out_.forward_before(memory, n, room.g, {drop2_.drawn(pass), room.a}, room.wide);
    norm2_.forward(memory, n, left2, room.wide, y_, room.moments2.data());
    return y_;
  }

  void backward(const UnitMemory& memory, const TextPass& pass, ConstTypedPointer x,
                TypedPointer change, const LayerScratch& scratch, ParameterOwner& owner) override {
    const TextKernels& text = context_->text;
    Stream& stream = context_->stream;
    const LayerRoom& room = *room_;
    const bool more = pass.accumulate;
    const std::size_t n = pass.tokens();
    const TypedPointer inner = scratch.inner;

    norm2_.backward(memory, n, room.wide, room.moments2.data(), more, change);
    ConstTypedPointer dy = dropped(drop2_, pass, change, scratch.wide);
    out_.backward_weight(memory, n, room.g, dy, more);
    finish(out_.last(), owner);
    out_.backward_gelu(memory, n, dy, room.u, inner);
    in_.backward_weight(memory, n, room.a, inner, more);
    finish(in_.last(), owner);
    in_.backward_input(memory, n, inner, true, change);

    norm1_.backward(memory, n, room.sum1, room.moments1.data(), more, change);
    dy = dropped(drop1_, pass, change, scratch.wide);
    mix_.backward_weight(memory, n, room.context, dy, more);
    finish(mix_.last(), owner);
    mix_.backward_input(memory, n, dy, false, scratch.wide2);
    const Heads<TypedPointer> changes = heads(scratch.heads);
    text.attention_backward(stream, attention(pass), pass.lengths, drop0_.drawn(pass),
                            heads(room.heads), room.probabilities.data(), room.context,
                            scratch.wide2, scratch.squares.data(), changes);
    const std::array<std::pair<const Linear*, TypedPointer>, 3> parts = {
        {{&value_, changes.value}, {&key_, changes.key}, {&query_, changes.query}}};
    for (const auto& [part, of_part] : parts) {
      part->backward_weight(memory, n, x, of_part, more, changes.stride);
      part->backward_input(memory, n, of_part, true, change, changes.stride);
      finish(part->last(), owner);
    }
  }

  void rehearse(ParameterOwner& owner) const override {
    for (const Linear* layer : {&out_, &in_, &mix_, &value_, &key_, &query_}) {
      finish(layer->last(), owner);
    }
  }

 private:
  LayerNorm norm2_; ///< Members are in the order of the arenas.
  Linear out_;
  Linear in_;
  LayerNorm norm1_;
  Linear mix_; ///< Projects the heads' contexts.
  Linear value_;
  Linear key_;
  Linear query_;
};

} // namespace

std::unique_ptr<TransformerLayer>
make_encoder_layer(const LayerContext& context, const std::string& name, const LayerShape& shape,
                   const DropoutRule& rule, std::uint32_t site, TensorTable& tensors) {
  return std::make_unique<EncoderLayer>(context, name, shape, rule, site, tensors);
}

} // namespace trainer
