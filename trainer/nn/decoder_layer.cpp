#include "trainer/nn/transformer_layer.h"

namespace trainer {
namespace {

using Epilogue = Matmul::Epilogue;

class DecoderLayer final : public TransformerLayer {
 public:
  DecoderLayer(const LayerContext& context, const std::string& name, const LayerShape& shape,
               const DropoutRule& rule, std::uint32_t site, TensorTable& tensors)
      : TransformerLayer(context, shape, rule, site, true, tensors),
        out_(context, name + ".mlp.c_proj", shape.inner, shape.width, tensors, Layout::turned),
        in_(context, name + ".mlp.c_fc", shape.width, shape.inner, tensors, Layout::turned),
        norm2_(context, name + ".ln_2", shape.width, shape.epsilon, tensors),
        mix_(context, name + ".attn.c_proj", shape.width, shape.width, tensors, Layout::turned),
        heads_(context, name + ".attn.c_attn", shape.width, 3 * shape.width, tensors,
               Layout::turned),
        norm1_(context, name + ".ln_1", shape.width, shape.epsilon, tensors) {}

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

    norm1_.forward(memory, n, x, room.wide, room.moments1.data());
    heads_.forward(memory, n, room.wide, room.heads);
    text.attention(stream, attention(pass), pass.lengths, drop0_.drawn(pass), heads(room.heads),
                   room.probabilities.data(), room.context);
    const Residual left =
        mix_.forward_before(memory, n, room.context, {drop1_.drawn(pass), x}, room.sum1);
    norm2_.forward(memory, n, left, room.sum1, room.a, room.moments2.data());
    in_.forward_gelu(memory, n, room.a, room.u, room.g, Epilogue::gelu_tanh_bias);
    out_.forward_onto(memory, n, room.g, {drop2_.drawn(pass), room.sum1}, y_);
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
    const TypedPointer branch = scratch.wide2;

    ConstTypedPointer dy = dropped(drop2_, pass, change, scratch.wide);
    out_.backward_weight(memory, n, room.g, dy, more);
    finish(out_.last(), owner);
    out_.backward_gelu(memory, n, dy, room.u, inner, Epilogue::dgelu_tanh);
    in_.backward_weight(memory, n, room.a, inner, more);
    finish(in_.last(), owner);
    in_.backward_input(memory, n, inner, false, branch);
    norm2_.backward(memory, n, room.sum1, room.moments2.data(), more, branch, change);

    dy = dropped(drop1_, pass, change, scratch.wide);
    mix_.backward_weight(memory, n, room.context, dy, more);
    finish(mix_.last(), owner);
    mix_.backward_input(memory, n, dy, false, branch);
    text.attention_backward(stream, attention(pass), pass.lengths, drop0_.drawn(pass),
                            heads(room.heads), room.probabilities.data(), room.context, branch,
                            scratch.squares.data(), heads(scratch.heads));
    heads_.backward_weight(memory, n, room.wide, scratch.heads, more);
    heads_.backward_input(memory, n, scratch.heads, false, branch);
    finish(heads_.last(), owner);
    norm1_.backward(memory, n, x, room.moments1.data(), more, branch, change);
    finish(norm1_.last(), owner);
  }

  void rehearse(ParameterOwner& owner) const override {
    for (const std::size_t last :
         {out_.last(), in_.last(), mix_.last(), heads_.last(), norm1_.last()}) {
      finish(last, owner);
    }
  }

 private:
  Linear out_; ///< Members are in the order of the arenas.
  Linear in_;
  LayerNorm norm2_;
  Linear mix_;   ///< Projects the heads' contexts.
  Linear heads_; ///< Queries, keys and values of all heads.
  LayerNorm norm1_;
};

} // namespace

std::unique_ptr<TransformerLayer>
make_decoder_layer(const LayerContext& context, const std::string& name, const LayerShape& shape,
                   const DropoutRule& rule, std::uint32_t site, TensorTable& tensors) {
  return std::make_unique<DecoderLayer>(context, name, shape, rule, site, tensors);
}

} // namespace trainer
