#include "trainer/nn/cpu/encoder_layer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trainer {
namespace {

/// dbias (+)= the sum of a gradient's rows.
void bias_backward(const TransformerKernels& kernels, float* dbias, const RowShape& shape,
                   const float* change, bool accumulate) {
  if (!accumulate) {
    std::fill_n(dbias, shape.width, 0.0F);
  }
  kernels.sum_rows(shape, change, dbias);
}

} // namespace

EncoderLayer::EncoderLayer(const std::string& name, const EncoderShape& shape,
                           const DropoutRule& rule, std::uint32_t site, TensorTable& tensors,
                           const CpuKernels& kernels)
    : shape_(shape), unit_(tensors.begin_unit()), first_(tensors.arena_size()), kernels_(&kernels),
      norm2_(name + ".output.LayerNorm", shape.width, shape.epsilon, tensors, kernels),
      out_(name + ".output.dense", shape.inner, shape.width, tensors, kernels),
      in_(name + ".intermediate.dense", shape.width, shape.inner, tensors, kernels),
      norm1_(name + ".attention.output.LayerNorm", shape.width, shape.epsilon, tensors, kernels),
      mix_(name + ".attention.output.dense", shape.width, shape.width, tensors, kernels),
      value_(name + ".attention.self.value", shape.width, shape.width, tensors, kernels),
      key_(name + ".attention.self.key", shape.width, shape.width, tensors, kernels),
      query_(name + ".attention.self.query", shape.width, shape.width, tensors, kernels),
      attention_(shape.width, shape.heads, rule, site, kernels), drop1_(rule, site + 1, kernels),
      drop2_(rule, site + 2, kernels) {}

void EncoderLayer::rehearse(ParameterOwner& owner) const {
  for (const Linear* layer : {&out_, &in_, &mix_, &value_, &key_, &query_}) {
    finish(*layer, owner);
  }
}

void EncoderLayer::initialize(std::span<float> arena) const {
  norm1_.initialize(arena);
  norm2_.initialize(arena);
}

EncoderRoom::EncoderRoom(const EncoderShape& shape, std::size_t rows, std::size_t length)
    : qkv(rows * length, 3 * shape.width), context(rows * length, shape.width),
      sum1(rows * length, shape.width), a(rows * length, shape.width),
      u(rows * length, shape.inner), g(rows * length, shape.inner),
      sum2(rows * length, shape.width), attention(rows, length, shape.width, shape.heads) {}

void EncoderLayer::make_room(std::size_t rows, std::size_t length,
                             std::shared_ptr<EncoderRoom> room) {
  const std::size_t tokens = rows * length;
  room_ = std::move(room);
  attention_.use(room_->attention);
  y_ = Matrix(tokens, shape_.width);
  norm1_.make_room(tokens);
  norm2_.make_room(tokens);
}

const Matrix& EncoderLayer::forward(const UnitMemory& memory, const TextPass& pass,
                                    const Matrix& x) {
  const TransformerKernels& kernels = kernels_->transformer;
  const std::size_t n = pass.tokens();
  const std::size_t words = pass.length * shape_.width / k_panel;
  drop1_.draw(pass, words);
  drop2_.draw(pass, words);
  const std::array<const Linear*, 3> parts = {&query_, &key_, &value_};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    float* to = room_->qkv.data() + i * shape_.width;
    parts[i]->forward(memory, n, x.data(), x.stride(), to, room_->qkv.stride());
    kernels.add_bias({n, shape_.width, room_->qkv.stride()}, parts[i]->bias(memory), to);
  }
  attention_.forward(pass, room_->qkv, room_->context);
  const RowShape wide = room_->sum1.shape(n);
  mix_.forward(memory, n, room_->context.data(), room_->context.stride(), room_->sum1.data(),
               room_->sum1.stride());
  kernels.drop_and_add(wide, drop1_.at(), mix_.bias(memory), x.data(), room_->sum1.data());
  norm1_.forward(memory, wide, room_->sum1.data(), room_->a.data());
  in_.forward(memory, n, room_->a.data(), room_->a.stride(), room_->u.data(), room_->u.stride());
  kernels.gelu(room_->u.shape(n), in_.bias(memory), room_->u.data(), room_->g.data());
  out_.forward(memory, n, room_->g.data(), room_->g.stride(), room_->sum2.data(),
               room_->sum2.stride());
  kernels.drop_and_add(wide, drop2_.at(), out_.bias(memory), room_->a.data(), room_->sum2.data());
  norm2_.forward(memory, wide, room_->sum2.data(), y_.data());
  return y_;
}

void EncoderLayer::backward(const UnitMemory& memory, const TextPass& pass, const Matrix& x,
                            const Matrix& change, const EncoderScratch& scratch,
                            ParameterOwner& owner) {
  const TransformerKernels& kernels = kernels_->transformer;
  const bool more = pass.accumulate;
  const std::size_t n = pass.tokens();
  const RowShape wide = change.shape(n);
  const Matrix& dropped = scratch.wide;
  const Matrix& inner = scratch.inner;

  norm2_.backward(memory, wide, room_->sum2.data(), change.data(), more);
  kernels.drop(wide, drop2_.at(), change.data(), dropped.data());
  bias_backward(kernels, out_.bias_gradient(memory), wide, dropped.data(), more);
  out_.backward_weight(memory, n, room_->g.data(), room_->g.stride(), dropped.data(),
                       dropped.stride(), more);
  finish(out_, owner);
  out_.backward_input(memory, n, dropped.data(), dropped.stride(), inner.data(), inner.stride(),
                      false, scratch.weight.data());
  if (!more) {
    std::fill_n(in_.bias_gradient(memory), shape_.inner, 0.0F);
  }
  kernels.gelu_backward(inner.shape(n), room_->u.data(), inner.data(), in_.bias_gradient(memory));
  in_.backward_weight(memory, n, room_->a.data(), room_->a.stride(), inner.data(), inner.stride(),
                      more);
  finish(in_, owner);
  in_.backward_input(memory, n, inner.data(), inner.stride(), change.data(), change.stride(), true,
                     scratch.weight.data());

  norm1_.backward(memory, wide, room_->sum1.data(), change.data(), more);
  kernels.drop(wide, drop1_.at(), change.data(), dropped.data());
  bias_backward(kernels, mix_.bias_gradient(memory), wide, dropped.data(), more);
  mix_.backward_weight(memory, n, room_->context.data(), room_->context.stride(), dropped.data(),
                       dropped.stride(), more);
  finish(mix_, owner);
  const Matrix& of_context = scratch.wide2;
  const Matrix& dqkv = scratch.qkv;
  mix_.backward_input(memory, n, dropped.data(), dropped.stride(), of_context.data(),
                      of_context.stride(), false, scratch.weight.data());
  attention_.backward(pass, room_->qkv, of_context, dqkv);
  const std::array<Linear*, 3> parts = {&query_, &key_, &value_};
  for (std::size_t i = parts.size(); i-- > 0;) {
    const float* dy = dqkv.data() + i * shape_.width;
    bias_backward(kernels, parts[i]->bias_gradient(memory), {n, shape_.width, dqkv.stride()}, dy,
                  more);
    parts[i]->backward_weight(memory, n, x.data(), x.stride(), dy, dqkv.stride(), more);
    parts[i]->backward_input(memory, n, dy, dqkv.stride(), change.data(), change.stride(), true,
                             scratch.weight.data());
    finish(*parts[i], owner);
  }
}

} // namespace trainer
