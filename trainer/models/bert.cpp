#include "trainer/models/bert.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/device/host_view.h"
#include "trainer/errors.h"
#include "trainer/models/bert_parts.h"
#include "trainer/models/models.h"
#include "trainer/nn/cpu/encoder_layer.h"
#include "trainer/nn/cpu/masked_head.h"
#include "trainer/nn/cpu/text_embedding.h"

namespace trainer {
namespace {

class Bert final : public BertBase {
 public:
  Bert(const ModelOptions& options, const CpuKernels& kernels)
      : BertBase(options), head_(bert_head_names(options), shape_.width, options.bert.vocabulary,
                                 shape_.epsilon, tensors_, kernels) {
    const DropoutRule rule = bert_dropout(options);
    layers_.reserve(options_.layers);
    for (std::size_t i = options_.layers; i-- > 0;) {
      layers_.emplace_back(fmt::format("{}.encoder.layer.{}", name_, i), shape_, rule, bert_site(i),
                           tensors_, kernels);
    }
    std::reverse(layers_.begin(), layers_.end());
    embedding_ = std::make_unique<TextEmbedding>(
        name_ + ".embeddings", bert_embedding_shape(options), rule, 0, tensors_, kernels);
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
    *to += forward(pass_of(batch, false, false), batch.tokens, owner);
  }

  std::vector<float> logits(const Batch& batch, ParameterOwner& owner) override {
    const Score score = forward(pass_of(batch, false, false), batch.tokens, owner);
    std::vector<float> all(static_cast<std::size_t>(score.count) * options_.vocabulary);
    for (std::size_t i = 0; i < static_cast<std::size_t>(score.count); ++i) {
      head_.logits(i, std::span(all).subspan(i * options_.vocabulary, options_.vocabulary));
    }
    return all;
  }

  void forward_backward(const Batch& batch, const float* scale, bool accumulate,
                        ParameterOwner& owner, Score* to) override {
    const TextPass pass = pass_of(batch, true, accumulate);
    *to += forward(pass, batch.tokens, owner);
    head_.backward(of_head_, embedding_->words(of_embedding_), pass, batch.tokens, *scale, change_);
    finish(owner, head_.unit());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      EncoderLayer& layer = layers_[i];
      const UnitMemory memory = owner.need(layer.unit());
      const Matrix& x = i == 0 ? *embedded_ : *outputs_[i - 1];
      if (options_.recompute && i + 1 < layers_.size()) { // The last one's are still there.
        layer.forward(memory, pass, x);
      }
      layer.backward(memory, pass, x, change_, scratch_, owner);
      owner.done(layer.unit());
    }
    embedding_->backward(of_embedding_, pass, batch.tokens.ids, change_);
    finish(owner, embedding_->unit());
  }

  void make_room(const Batch& like) override {
    take_room(like.rows, like.tokens.length, like.tokens.most_masked);
  }

 private:
  void rehearse_layer(std::size_t number, ParameterOwner& owner) const override {
    layers_[number].rehearse(owner);
  }

  void make_rooms(std::size_t rows, std::size_t length, std::size_t most_masked) override {
    embedding_->make_room(rows, length);
    head_.make_room(rows * most_masked);
    std::shared_ptr<EncoderRoom> room;
    for (EncoderLayer& layer : layers_) {
      if (room == nullptr || !options_.recompute) {
        room = std::make_shared<EncoderRoom>(shape_, rows, length);
      }
      layer.make_room(rows, length, room);
    }
    change_ = Matrix(rows * length, shape_.width);
    scratch_ = {Matrix(rows * length, shape_.width), Matrix(rows * length, shape_.width),
                Matrix(rows * length, options_.inner), Matrix(rows * length, 3 * shape_.width),
                Buffer(shape_.width * std::max(shape_.width, options_.inner))};
  }

  /// The embedding is needed to the end: its words are the head's decoder.
  Score forward(const TextPass& pass, const Tokens& tokens, ParameterOwner& owner) {
    of_embedding_ = owner.need(embedding_->unit());
    embedded_ = &embedding_->forward(of_embedding_, pass, tokens.ids);
    const Matrix* x = embedded_;
    outputs_.clear();
    for (EncoderLayer& layer : layers_) {
      x = &layer.forward(owner.need(layer.unit()), pass, *x);
      outputs_.push_back(x);
      owner.done(layer.unit());
    }
    of_head_ = owner.need(head_.unit());
    return head_.forward(of_head_, embedding_->words(of_embedding_), pass, tokens, *x);
  }

  MaskedHead head_;                  ///< In the order of the arenas.
  std::vector<EncoderLayer> layers_; ///< From the input on.
  std::unique_ptr<TextEmbedding> embedding_;
  UnitMemory of_head_; ///< While a pass lasts.
  UnitMemory of_embedding_;
  const Matrix* embedded_ = nullptr;
  std::vector<const Matrix*> outputs_; ///< Of the layers.
  Matrix change_;                      ///< (N, H): the gradient on its way down.
  EncoderScratch scratch_;
};

void check(const std::string& name, const BertOptions& o) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("--model={}: {}", name, what));
  };
  if (o.vocabulary == 0) {
    refuse("learns from text; give --data=DIR, a folder that dtrain-trainer tokenize has written");
  }
  if (o.layers == 0 || o.heads == 0 || o.hidden == 0 || o.hidden % (o.heads * k_panel) != 0) {
    refuse(fmt::format("{} wide in {} heads; --hidden must be a multiple of 16 × --heads", o.hidden,
                       o.heads));
  }
  if (o.inner == 0 || o.inner % k_panel != 0) {
    refuse(fmt::format("--ff={}: must be a multiple of 16", o.inner));
  }
}

} // namespace

std::unique_ptr<MaskedLanguageModel> make_bert(const ModelOptions& options, Device& device) {
  check(options.name, options.bert);
  if (device.cpu_kernels() == nullptr) {
    return make_layered_bert(options, device);
  }
  return std::make_unique<Bert>(options, *device.cpu_kernels());
}

void apply_preset(const std::string& name, BertOptions& options) {
  struct Preset {
    const char* name;
    std::size_t layers, hidden, heads, inner;
  };
  constexpr Preset presets[] = {
      {"hello", 6, 256, 8, 512}, {"base", 12, 768, 12, 3072}, {"large", 24, 1024, 16, 4096}};
  const auto* preset = std::find_if(std::begin(presets), std::end(presets),
                                    [&](const Preset& one) { return one.name == name; });
  if (preset == std::end(presets)) {
    throw UsageError(fmt::format("--preset={}: must be hello, base or large", name));
  }
  options.layers = preset->layers;
  options.hidden = preset->hidden;
  options.heads = preset->heads;
  options.inner = preset->inner;
}

} // namespace trainer
