// Which words stand where tokens are masked, or come next: in BERT a dense layer and GELU, then a
// norm and a logit of each word, by the words' own rows of the embedding.
//
// All that the kernels read of a batch is in the device's memory, and the host looks at none of it:
// there is a slot for each token that may be masked, K a row, and all of them are computed.
//
// Letters: N tokens of a pass, B rows of T, H wide, V words, M = B·K slots.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "trainer/nn/batch.h"
#include "trainer/nn/text_layers.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

class MaskedHead {
 public:
  /// Adds a unit of its tensors, as wide as a layer, whose memory is what is read and written.
  MaskedHead(const LayerContext& context, const HeadNames& names, const LayerShape& shape,
             std::size_t vocabulary, TensorTable& tensors)
      : context_(&context), width_(shape.width), vocabulary_(vocabulary),
        unit_(tensors.begin_unit()), bias_(add_bias(names.bias, vocabulary, tensors)),
        norm_(context, names.norm, width_, shape.epsilon, tensors) {
    if (!names.dense.empty()) {
      dense_.emplace(context, names.dense, width_, width_, tensors);
    }
  }

  std::size_t unit() const { return unit_; }
  void initialize(std::span<float> arena) const { norm_.initialize(arena); }

  void make_room(std::size_t slots) {
    for (Buffer* wide : {&picked_, &h_, &change_}) {
      *wide = context_->device.allocate(slots * width_, DType::f32);
    }
    for (Buffer* of_dense : {&u_, &g_}) {
      *of_dense = context_->device.allocate(dense_ ? slots * width_ : 0, DType::f32);
    }
    moments_ = context_->device.allocate(slots * 2, DType::f32);
    logits_ = context_->device.allocate(slots * vocabulary_, DType::f32);
  }

  /// Of x (N, H): the logits (M, V). `memory`: of its unit; `words`: of the words' rows (V, H).
  const float* forward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                       const Batch& batch, const float* x) {
    const std::size_t slots = pass.rows * batch[field::Name::masked].width;
    if (slots == 0) {
      return nullptr;
    }
    context_->text.gather_masked(context_->stream, shape(pass, batch, width_),
                                 batch[field::masked].data(), x, picked_.data());
    if (dense_) {
      dense_->forward_gelu(memory, slots, picked_.data(), u_.data(), g_.data());
    }
    norm_.forward(memory, slots, of_norm(), h_.data(), moments_.data());
    context_->multiply(decoder(slots).forward(
        h_.data(), words.weights, bias_ ? memory.weights + *bias_ : nullptr, logits_.data(),
        bias_ ? Matmul::Epilogue::bias : Matmul::Epilogue::none));
    return logits_.data();
  }

  /// Of the logits before, which become their gradient, times `*scale`; null: of no use.
  void score(const TextPass& pass, const Batch& batch, const float* scale, Score* to) const {
    if (batch[field::Name::masked].width > 0) {
      context_->text.masked_cross_entropy(context_->stream, shape(pass, batch, vocabulary_),
                                          batch[field::masked].data(), batch[field::targets].data(),
                                          scale, logits_.data(), to);
    }
  }

  /// Behind score(): `change` (N, H) becomes x's gradient; the words' is written over, or with
  /// pass.accumulate added to.
  void backward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                const Batch& batch, float* change) const {
    const bool more = pass.accumulate;
    Stream& stream = context_->stream;
    const std::size_t slots = pass.rows * batch[field::Name::masked].width;
    stream.clear(change, pass.tokens() * width_ * sizeof(float));
    if (slots == 0) {
      if (!more) {
        stream.clear(memory.gradients, last() * sizeof(float));
        stream.clear(words.gradients, vocabulary_ * width_ * sizeof(float));
      }
      return;
    }
    context_->multiply(decoder(slots).backward_weight(h_.data(), logits_.data(), more,
                                                      words.gradients,
                                                      bias_ ? memory.gradients + *bias_ : nullptr));
    context_->multiply(
        decoder(slots).backward_input(logits_.data(), words.weights, false, change_.data()));
    norm_.backward(memory, slots, of_norm(), moments_.data(), more, change_.data());
    if (dense_) {
      context_->text.gelu_backward(stream, slots * width_, u_.data(), change_.data());
      dense_->backward_weight(memory, slots, picked_.data(), change_.data(), more);
      dense_->backward_input(memory, slots, change_.data(), false, picked_.data());
    }
    context_->text.scatter_masked(stream, shape(pass, batch, width_), batch[field::masked].data(),
                                  (dense_ ? picked_ : change_).data(), change);
  }

 private:
  DenseShape decoder(std::size_t slots) const { return {slots, width_, vocabulary_}; }
  static MaskedShape shape(const TextPass& pass, const Batch& batch, std::size_t width) {
    return {pass.rows, pass.length, batch[field::Name::masked].width, width};
  }

  static std::optional<std::size_t> add_bias(const std::string& name, std::size_t count,
                                             TensorTable& tensors) {
    return name.empty() ? std::nullopt : std::optional(tensors[tensors.add(name, {count})].in_unit);
  }
  const float* of_norm() const { return (dense_ ? g_ : picked_).data(); }
  std::size_t last() const { return dense_ ? dense_->last() : norm_.last(); }

  const LayerContext* context_;
  std::size_t width_;
  std::size_t vocabulary_;
  std::size_t unit_;
  std::optional<std::size_t> bias_; ///< Where it lies in the unit.
  LayerNorm norm_;
  std::optional<Linear> dense_;
  Buffer picked_{0};  ///< (M, H)
  Buffer u_{0};       ///< (M, H): before GELU,
  Buffer g_{0};       ///< and behind it,
  Buffer moments_{0}; ///< (M, 2)
  Buffer h_{0};       ///< and normalised;
  Buffer change_{0};  ///< its gradient.
  Buffer logits_{0};  ///< (M, V)
};

} // namespace trainer
