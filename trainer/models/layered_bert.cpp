// BERT over the kernels that every device has: what a GPU computes. Its tensors are those of the
// CPU's own (bert.cpp), so that one's checkpoint is the other's, and it drops the same values.
//
// All that the kernels read of a batch is in the device's memory, and the host looks at none of it:
// the head has a slot for each token that may be masked, K a row, and computes them all.
//
// Letters: N tokens of a pass, B rows of T, H wide, V words, M = B·K slots.
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "trainer/models/bert.h"
#include "trainer/models/bert_parts.h"
#include "trainer/models/models.h"
#include "trainer/nn/layered_encoder.h"

namespace trainer {
namespace {

/// As TextEmbedding.
class LayeredEmbedding {
 public:
  LayeredEmbedding(const LayeredContext& context, const std::string& name,
                   const ModelOptions& options, TensorTable& tensors)
      : context_(&context), shape_(bert_embedding_shape(options)), unit_(tensors.begin_unit()),
        norm_(context, name + ".LayerNorm", shape_.width, shape_.epsilon, tensors),
        types_(add(tensors, name + ".token_type_embeddings.weight", shape_.types)),
        positions_(add(tensors, name + ".position_embeddings.weight", shape_.positions)),
        words_(add(tensors, name + ".word_embeddings.weight", shape_.vocabulary)),
        dropout_(context, bert_dropout(options), 0) {}

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

  const LayeredContext* context_;
  EmbeddingShape shape_;
  std::size_t unit_;
  LayeredNorm norm_; ///< In the order of the arenas.
  std::size_t types_;
  std::size_t positions_;
  std::size_t words_;
  LayeredDropout dropout_;
  Buffer sum_{0};     ///< (N, H): before the norm,
  Buffer moments_{0}; ///< (N, 2)
  Buffer x_{0};       ///< and behind it.
};

/// As MaskedHead.
class LayeredHead {
 public:
  LayeredHead(const LayeredContext& context, const ModelOptions& options, TensorTable& tensors)
      : context_(&context), width_(options.bert.hidden), vocabulary_(options.bert.vocabulary),
        unit_(tensors.begin_unit()),
        bias_(tensors[tensors.add(bert_head_names(options).bias, {vocabulary_})].in_unit),
        norm_(context, bert_head_names(options).norm, width_, bert_layer_shape(options).epsilon,
              tensors),
        dense_(context, bert_head_names(options).dense, width_, width_, tensors) {}

  std::size_t unit() const { return unit_; }
  void initialize(std::span<float> arena) const { norm_.initialize(arena); }

  void make_room(std::size_t slots) {
    for (Buffer* wide : {&picked_, &u_, &g_, &h_, &change_}) {
      *wide = context_->device.allocate(slots * width_, DType::f32);
    }
    moments_ = context_->device.allocate(slots * 2, DType::f32);
    logits_ = context_->device.allocate(slots * vocabulary_, DType::f32);
  }

  /// Of x (N, H): the logits (M, V). `memory`: of its unit; `words`: of the words' rows (V, H).
  const float* forward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                       const Tokens& tokens, const float* x) {
    const std::size_t slots = pass.rows * tokens.most_masked;
    if (slots == 0) {
      return nullptr;
    }
    context_->text.gather_masked(context_->stream, shape(pass, tokens, width_),
                                 tokens.masked.data(), x, picked_.data());
    dense_.forward_gelu(memory, slots, picked_.data(), u_.data(), g_.data());
    norm_.forward(memory, slots, g_.data(), h_.data(), moments_.data());
    context_->multiply(
        decoder(slots).forward(h_.data(), words.weights, memory.weights + bias_, logits_.data()));
    return logits_.data();
  }

  /// Of the logits before, which become their gradient, times `*scale`; null: 0.
  void score(const TextPass& pass, const Tokens& tokens, const float* scale, Score* to) const {
    if (tokens.most_masked > 0) {
      context_->text.masked_cross_entropy(context_->stream, shape(pass, tokens, vocabulary_),
                                          tokens.masked.data(), tokens.targets.data(), scale,
                                          logits_.data(), to);
    }
  }

  /// Behind score(): `change` (N, H) becomes x's gradient; the words' is written over, or with
  /// pass.accumulate added to.
  void backward(const UnitMemory& memory, const UnitMemory& words, const TextPass& pass,
                const Tokens& tokens, float* change) const {
    const bool more = pass.accumulate;
    Stream& stream = context_->stream;
    const std::size_t slots = pass.rows * tokens.most_masked;
    stream.clear(change, pass.tokens() * width_ * sizeof(float));
    if (slots == 0) {
      if (!more) {
        stream.clear(memory.gradients, dense_.last() * sizeof(float));
        stream.clear(words.gradients, vocabulary_ * width_ * sizeof(float));
      }
      return;
    }
    context_->multiply(decoder(slots).backward_weight(h_.data(), logits_.data(), more,
                                                      words.gradients, memory.gradients + bias_));
    context_->multiply(
        decoder(slots).backward_input(logits_.data(), words.weights, false, change_.data()));
    norm_.backward(memory, slots, g_.data(), moments_.data(), more, change_.data());
    context_->text.gelu_backward(stream, slots * width_, u_.data(), change_.data());
    dense_.backward_weight(memory, slots, picked_.data(), change_.data(), more);
    dense_.backward_input(memory, slots, change_.data(), false, picked_.data());
    context_->text.scatter_masked(stream, shape(pass, tokens, width_), tokens.masked.data(),
                                  picked_.data(), change);
  }

 private:
  DenseShape decoder(std::size_t slots) const { return {slots, width_, vocabulary_}; }
  static MaskedShape shape(const TextPass& pass, const Tokens& tokens, std::size_t width) {
    return {pass.rows, pass.length, tokens.most_masked, width};
  }

  const LayeredContext* context_;
  std::size_t width_;
  std::size_t vocabulary_;
  std::size_t unit_;
  std::size_t bias_; ///< Where it lies in the unit.
  LayeredNorm norm_;
  LayeredLinear dense_;
  Buffer picked_{0};  ///< (M, H)
  Buffer u_{0};       ///< (M, H): before GELU,
  Buffer g_{0};       ///< and behind it,
  Buffer moments_{0}; ///< (M, 2)
  Buffer h_{0};       ///< and normalised;
  Buffer change_{0};  ///< its gradient.
  Buffer logits_{0};  ///< (M, V)
};

class LayeredBert final : public BertBase {
 public:
  LayeredBert(const ModelOptions& options, Device& device)
      : BertBase(options), context_(device), head_(context_, options, tensors_) {
    layers_.reserve(options_.layers);
    for (std::size_t i = options_.layers; i-- > 0;) {
      layers_.emplace_back(context_, fmt::format("{}.encoder.layer.{}", name_, i), shape_,
                           bert_dropout(options), bert_site(i), tensors_);
    }
    std::reverse(layers_.begin(), layers_.end());
    embedding_.emplace(context_, name_ + ".embeddings", options, tensors_);
  }

  void initialize(std::uint64_t seed, std::span<float> arena) const override {
    draw_bert_weights(seed, tensors_, arena);
    embedding_->initialize(arena);
    head_.initialize(arena);
    for (const LayeredEncoder& layer : layers_) {
      layer.initialize(arena);
    }
  }

  void evaluate(const Batch& batch, ParameterOwner& owner, Score* to) override {
    const TextPass pass = pass_of(batch, false, false);
    forward(pass, batch.tokens, owner);
    head_.score(pass, batch.tokens, nullptr, to);
  }

  std::vector<float> logits(const Batch& batch, ParameterOwner& owner) override {
    const std::span<const std::int32_t> masked = batch.tokens.masked;
    const float* const found = forward(pass_of(batch, false, false), batch.tokens, owner);
    std::vector<std::int32_t> places(masked.size());
    context_.stream.copy(masked.data(), places.data(), masked.size_bytes());
    std::vector<float> all;
    for (std::size_t slot = 0; slot < places.size(); ++slot) {
      if (places[slot] >= 0) {
        const std::size_t first = all.size();
        all.resize(first + options_.vocabulary);
        context_.stream.copy(found + slot * options_.vocabulary, all.data() + first,
                             options_.vocabulary * sizeof(float));
      }
    }
    return all;
  }

  void forward_backward(const Batch& batch, const float* scale, bool accumulate,
                        ParameterOwner& owner, Score* to) override {
    const TextPass pass = pass_of(batch, true, accumulate);
    forward(pass, batch.tokens, owner);
    head_.score(pass, batch.tokens, scale, to);
    head_.backward(of_head_, embedding_->words(of_embedding_), pass, batch.tokens, change_.data());
    finish(owner, head_.unit());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      LayeredEncoder& layer = layers_[i];
      const UnitMemory memory = owner.need(layer.unit());
      const float* const x = inputs_[i];
      if (options_.recompute && i + 1 < layers_.size()) { // The last one's are still there.
        layer.forward(memory, pass, x);
      }
      layer.backward(memory, pass, x, change_.data(), scratch_, owner);
      owner.done(layer.unit());
    }
    embedding_->backward(of_embedding_, pass, batch.tokens.ids.data(), change_.data());
    finish(owner, embedding_->unit());
  }

 private:
  void rehearse_layer(std::size_t number, ParameterOwner& owner) const override {
    layers_[number].rehearse(owner);
  }

  void make_rooms(std::size_t rows, std::size_t length, std::size_t most_masked) override {
    scratch_ = {};
    embedding_->make_room(rows, length);
    head_.make_room(rows * most_masked);
    std::shared_ptr<LayeredRoom> room;
    for (LayeredEncoder& layer : layers_) {
      if (room == nullptr || !options_.recompute) {
        room = std::make_shared<LayeredRoom>(context_.device, shape_, rows, length);
      }
      layer.make_room(rows, length, room);
    }
    change_ = context_.device.allocate(rows * length * shape_.width, DType::f32);
    scratch_ = LayeredScratch(context_.device, shape_, rows, length);
  }

  /// The logits. The embedding is needed to the end: its words are the head's decoder.
  const float* forward(const TextPass& pass, const Tokens& tokens, ParameterOwner& owner) {
    of_embedding_ = owner.need(embedding_->unit());
    const float* x = embedding_->forward(of_embedding_, pass, tokens.ids.data());
    inputs_.clear();
    for (LayeredEncoder& layer : layers_) {
      inputs_.push_back(x);
      x = layer.forward(owner.need(layer.unit()), pass, x);
      owner.done(layer.unit());
    }
    of_head_ = owner.need(head_.unit());
    return head_.forward(of_head_, embedding_->words(of_embedding_), pass, tokens, x);
  }

  LayeredContext context_;
  LayeredHead head_;                   ///< In the order of the arenas.
  std::vector<LayeredEncoder> layers_; ///< From the input on.
  std::optional<LayeredEmbedding> embedding_;
  UnitMemory of_head_; ///< While a pass lasts.
  UnitMemory of_embedding_;
  std::vector<const float*> inputs_; ///< Of the layers, (N, H) each.
  Buffer change_{0};                 ///< (N, H): the gradient on its way down.
  LayeredScratch scratch_;
};

} // namespace

std::unique_ptr<MaskedLanguageModel> make_layered_bert(const ModelOptions& options,
                                                       Device& device) {
  return std::make_unique<LayeredBert>(options, device);
}

} // namespace trainer
