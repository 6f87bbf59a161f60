// Predicts masked words, or next ones: in BERT a dense layer with GELU, then a norm, and logits
// with the word embeddings as weights (tied decoder).
//
// The host never looks at the batch, which is in device memory: there is a slot for each token that
// may be masked, K a row, and all slots are computed.
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
  /// Adds its tensors as a unit; hidden size as in a layer.
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
      *wide = context_->activations(slots * width_);
    }
    for (Buffer* of_dense : {&u_, &g_}) {
      *of_dense = context_->activations(dense_ ? slots * width_ : 0);
    }
    moments_ = context_->device.allocate(slots * 2, DType::f32);
    logits_ = context_->activations(slots * logits_row());
  }

  /// Stride between the logits of slots: 16-bit logits are aligned to 16 bytes, as tensor cores
  /// need.
  std::size_t logits_row() const {
    constexpr std::size_t k_together = 8;
    return context_->device.activation_type() == DType::f32
               ? vocabulary_
               : (vocabulary_ + k_together - 1) / k_together * k_together;
  }

  /// Computes from x (N, H) the logits (M, V), logits_row() apart. `memory`: its unit; `words`: the
  /// word embeddings (V, H).
  ConstTypedPointer forward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                            const Batch& batch, ConstTypedPointer x) {
    const std::size_t slots = pass.rows * batch[field::Name::masked].width;
    if (slots == 0) {
      return {};
    }
    context_->text.gather_masked(context_->stream, shape(pass, batch, width_),
                                 batch[field::masked].data(), x, picked_);
    if (dense_) {
      dense_->forward_gelu(memory, slots, picked_, u_, g_);
    }
    norm_.forward(memory, slots, of_norm(), h_, moments_.data());
    Matmul product = decoder(slots).forward(
        h_, words.factor(0), bias_ ? memory.factor(*bias_) : ConstTypedPointer(), logits_,
        bias_ ? Matmul::Epilogue::bias : Matmul::Epilogue::none);
    product.c_row = product.b_rows = logits_row();
    context_->multiply(product);
    return logits_;
  }

  /// Scores the last logits, which become their gradient times `*scale`; null: no gradient.
  void score(const TextPass& pass, const Batch& batch, const float* scale, Score* to) const {
    if (batch[field::Name::masked].width > 0) {
      MaskedShape of_logits = shape(pass, batch, vocabulary_);
      of_logits.row = logits_row();
      context_->text.masked_cross_entropy(context_->stream, of_logits, batch[field::masked].data(),
                                          batch[field::targets].data(), scale, logits_, to);
    }
  }

  /// After score(): `change` (N, H) becomes the gradient of x. The words' gradient is overwritten,
  /// or added to with pass.accumulate.
  void backward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                const Batch& batch, TypedPointer change) const {
    const bool more = pass.accumulate;
    Stream& stream = context_->stream;
    const std::size_t slots = pass.rows * batch[field::Name::masked].width;
    stream.clear(change.memory, pass.tokens() * width_ * size_of(change.type));
    if (slots == 0) {
      if (!more) {
        stream.clear(memory.gradients, last() * sizeof(float));
        stream.clear(words.gradients, vocabulary_ * width_ * sizeof(float));
      }
      return;
    }
    Matmul of_words = decoder(slots).backward_weight(h_, logits_, more, words.gradients,
                                                     bias_ ? memory.gradients + *bias_ : nullptr);
    Matmul of_h = decoder(slots).backward_input(logits_, words.factor(0), false, change_);
    of_words.a_row = of_h.a_row = of_h.b_rows = logits_row();
    context_->multiply(of_words);
    context_->multiply(of_h);
    norm_.backward(memory, slots, of_norm(), moments_.data(), more, change_);
    if (dense_) {
      context_->text.gelu_backward(stream, slots * width_, u_, change_);
      dense_->backward_weight(memory, slots, picked_, change_, more);
      dense_->backward_input(memory, slots, change_, false, picked_);
    }
    context_->text.scatter_masked(stream, shape(pass, batch, width_), batch[field::masked].data(),
                                  dense_ ? picked_ : change_, change);
  }

 private:
  /// The logits' products stay in bf16: FP8 would round the loss itself.
  DenseShape decoder(std::size_t slots) const { return {slots, width_, vocabulary_, false}; }
  static MaskedShape shape(const TextPass& pass, const Batch& batch, std::size_t width) {
    return {pass.rows, pass.length, batch[field::Name::masked].width, width};
  }

  static std::optional<std::size_t> add_bias(const std::string& name, std::size_t count,
                                             TensorTable& tensors) {
    return name.empty() ? std::nullopt : std::optional(tensors[tensors.add(name, {count})].in_unit);
  }
  const Buffer& of_norm() const { return dense_ ? g_ : picked_; }
  std::size_t last() const { return dense_ ? dense_->last() : norm_.last(); }

  const LayerContext* context_;
  std::size_t width_;
  std::size_t vocabulary_;
  std::size_t unit_;
  std::optional<std::size_t> bias_; ///< Offset in the unit.
  LayerNorm norm_;
  std::optional<Linear> dense_;
  Buffer picked_{0};  ///< (M, H)
  Buffer u_{0};       ///< (M, H): input of GELU,
  Buffer g_{0};       ///< its output,
  Buffer moments_{0}; ///< (M, 2)
  Buffer h_{0};       ///< the normalised output,
  Buffer change_{0};  ///< and the gradient of that.
  Buffer logits_{0};  ///< (M, logits_row()), zeros after V
};

} // namespace trainer
