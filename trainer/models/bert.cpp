#include "trainer/models/bert.h"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/models/bert_shapes.h"
#include "trainer/nn/encoder_layer.h"
#include "trainer/nn/masked_head.h"
#include "trainer/nn/text_embedding.h"

namespace trainer {
namespace {

class Bert final : public MaskedLanguageModel {
 public:
  Bert(const ModelOptions& options, Device& device)
      : name_(options.name), options_(options.bert), shape_(bert_layer_shape(options)),
        context_(device),
        head_(context_, bert_head_names(options), shape_, options_.vocabulary, tensors_) {
    layers_.reserve(options_.layers);
    for (std::size_t i = options_.layers; i-- > 0;) {
      layers_.emplace_back(context_, fmt::format("{}.encoder.layer.{}", name_, i), shape_,
                           bert_dropout(options), bert_site(i), tensors_);
    }
    std::reverse(layers_.begin(), layers_.end());
    embedding_.emplace(context_, name_ + ".embeddings", bert_embedding_shape(options),
                       bert_dropout(options), 0, tensors_);
  }

  const TensorTable& tensors() const override { return tensors_; }
  std::string describe() const override {
    return fmt::format("{} of {} layers, {} wide, {} heads, {} within, {} words", name_,
                       options_.layers, options_.hidden, options_.heads, options_.inner,
                       options_.vocabulary);
  }

  void initialize(std::uint64_t seed, std::span<float> arena) const override {
    draw_bert_weights(seed, tensors_, arena);
    embedding_->initialize(arena);
    head_.initialize(arena);
    for (const EncoderLayer& layer : layers_) {
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
      EncoderLayer& layer = layers_[i];
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

  void rehearse(std::size_t /*rows*/, ParameterOwner& owner,
                const std::function<void(std::size_t unit)>& ahead) const override {
    owner.need(embedding_->unit());
    for (const EncoderLayer& layer : layers_) {
      owner.need(layer.unit());
      owner.done(layer.unit());
    }
    owner.need(head_.unit());
    ahead(embedding_->unit()); // The words' rows are the head's decoder.
    finish(owner, head_.unit());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      owner.need(layers_[i].unit());
      layers_[i].rehearse(owner);
      owner.done(layers_[i].unit());
    }
    finish(owner, embedding_->unit());
  }

  void make_room(const Batch& like) override {
    take_room(like.rows, like.tokens.length, like.tokens.most_masked);
  }

 private:
  /// For passes of so many rows, instead of what there was.
  void take_room(std::size_t rows, std::size_t length, std::size_t most_masked) {
    rows_ = rows;
    length_ = length;
    most_masked_ = most_masked;
    scratch_ = {};
    embedding_->make_room(rows, length);
    head_.make_room(rows * most_masked);
    std::shared_ptr<EncoderRoom> room;
    for (EncoderLayer& layer : layers_) {
      if (room == nullptr || !options_.recompute) {
        room = std::make_shared<EncoderRoom>(context_.device, shape_, rows, length);
      }
      layer.make_room(rows, length, room);
    }
    change_ = context_.device.allocate(rows * length * shape_.width, DType::f32);
    scratch_ = EncoderScratch(context_.device, shape_, rows, length);
  }

  /// Of a batch, for which there is room then. Throws UsageError where its rows are too long, and
  /// where the host can see them DataError for words that the model does not have.
  TextPass pass_of(const Batch& batch, bool is_training, bool accumulate) {
    const Tokens& tokens = batch.tokens;
    if (tokens.length > options_.max_length) {
      throw UsageError(fmt::format("--max-length={}: the text's rows have {} tokens",
                                   options_.max_length, tokens.length));
    }
    if (context_.device.is_host()) {
      check_words(tokens.ids);
      check_words(tokens.targets);
    }
    if (batch.rows > rows_ || tokens.length != length_ || tokens.most_masked > most_masked_) {
      take_room(batch.rows, tokens.length, tokens.most_masked);
    }
    return {.rows = batch.rows,
            .length = tokens.length,
            .lengths = tokens.lengths.data(),
            .position = batch.position,
            .is_training = is_training,
            .accumulate = accumulate};
  }

  void check_words(std::span<const std::int32_t> ids) const {
    for (const std::int32_t id : ids) {
      if (static_cast<std::size_t>(id) >= options_.vocabulary) { // A negative one is too large.
        throw DataError(fmt::format("token {} of the text, and the model's vocabulary has {}; "
                                    "train with the vocabulary that the text was tokenized with",
                                    id, options_.vocabulary));
      }
    }
  }

  /// The logits. The embedding is needed to the end: its words are the head's decoder.
  const float* forward(const TextPass& pass, const Tokens& tokens, ParameterOwner& owner) {
    of_embedding_ = owner.need(embedding_->unit());
    const float* x = embedding_->forward(of_embedding_, pass, tokens.ids.data());
    inputs_.clear();
    for (EncoderLayer& layer : layers_) {
      inputs_.push_back(x);
      x = layer.forward(owner.need(layer.unit()), pass, x);
      owner.done(layer.unit());
    }
    of_head_ = owner.need(head_.unit());
    return head_.forward(of_head_, embedding_->words(of_embedding_), pass, tokens, x);
  }

  std::string name_;
  BertOptions options_;
  EncoderShape shape_;
  LayerContext context_;
  TensorTable tensors_;
  MaskedHead head_;                  ///< In the order of the arenas.
  std::vector<EncoderLayer> layers_; ///< From the input on.
  std::optional<TextEmbedding> embedding_;
  UnitMemory of_head_; ///< While a pass lasts.
  UnitMemory of_embedding_;
  std::vector<const float*> inputs_; ///< Of the layers, (N, H) each.
  Buffer change_{0};                 ///< (N, H): the gradient on its way down.
  EncoderScratch scratch_;
  // What there is room for.
  std::size_t rows_ = 0;
  std::size_t length_ = 0;
  std::size_t most_masked_ = 0;
};

} // namespace

std::unique_ptr<MaskedLanguageModel> make_bert(const ModelOptions& options, Device& device) {
  check_bert_shape(options);
  return std::make_unique<Bert>(options, device);
}

} // namespace trainer
