#include "trainer/models/bert.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/device/host_view.h"
#include "trainer/errors.h"
#include "trainer/models/bert_parts.h"
#include "trainer/models/models.h"
#include "trainer/nn/encoder_layer.h"
#include "trainer/nn/masked_head.h"
#include "trainer/nn/text_embedding.h"

namespace trainer {
namespace {

class Bert final : public BertBase {
 public:
  Bert(const ModelOptions& options, const CpuKernels& kernels)
      : BertBase(options), head_(bert_head_names(options), shape_.width, options.bert.vocabulary,
                                 shape_.epsilon, tensors_, kernels) {
    const DropoutRule rule = bert_dropout(options);
    units_.push_back({"head", 0, tensors_.arena_size()});
    layers_.reserve(options_.layers);
    for (std::size_t i = options_.layers; i-- > 0;) {
      layers_.emplace_back(fmt::format("{}.encoder.layer.{}", name_, i), shape_, rule, bert_site(i),
                           tensors_, kernels);
      units_.push_back({fmt::format("layer {}", i), layers_.back().first(), layers_.back().last()});
    }
    std::reverse(layers_.begin(), layers_.end());
    embedding_ = std::make_unique<TextEmbedding>(
        name_ + ".embeddings", bert_embedding_shape(options), rule, 0, tensors_, kernels);
    units_.push_back({"embeddings", embedding_->first(), tensors_.arena_size()});
  }

  void bind(std::span<float> parameters, std::span<float> gradients) override {
    parameters_ = parameters;
    embedding_->bind(parameters, gradients);
    head_.bind(parameters, gradients, embedding_->words());
    for (EncoderLayer& layer : layers_) {
      layer.bind(parameters, gradients);
    }
  }

  void initialize(std::uint64_t seed) override {
    draw_bert_weights(seed, tensors_, parameters_);
    embedding_->initialize();
    head_.initialize();
    for (const EncoderLayer& layer : layers_) {
      layer.initialize();
    }
  }

  void evaluate(const Batch& batch, const Hooks& hooks, Score* to) override {
    *to += forward(pass_of(batch, false, false), batch.tokens, hooks);
  }

  std::vector<float> logits(const Batch& batch) override {
    const Score score = forward(pass_of(batch, false, false), batch.tokens, {});
    std::vector<float> all(static_cast<std::size_t>(score.count) * options_.vocabulary);
    for (std::size_t i = 0; i < static_cast<std::size_t>(score.count); ++i) {
      head_.logits(i, std::span(all).subspan(i * options_.vocabulary, options_.vocabulary));
    }
    return all;
  }

  void forward_backward(const Batch& batch, const float* scale, bool accumulate, const Hooks& hooks,
                        Score* to) override {
    const TextPass pass = pass_of(batch, true, accumulate);
    *to += forward(pass, batch.tokens, hooks);
    const auto final = [&](std::size_t count) { tell(hooks.final, count); };
    head_.backward(pass, batch.tokens, *scale, change_);
    final(head_.last());
    tell(hooks.done, 0);
    for (std::size_t i = layers_.size(); i-- > 0;) {
      tell(hooks.need, unit_of(i));
      const Matrix& x = i == 0 ? *embedded_ : *outputs_[i - 1];
      if (options_.recompute && i + 1 < layers_.size()) { // The last one's are still there.
        layers_[i].forward(pass, x);
      }
      layers_[i].backward(pass, x, change_, scratch_, final);
      tell(hooks.done, unit_of(i));
    }
    embedding_->backward(pass, batch.tokens.ids, change_);
    final(tensors_.arena_size());
    tell(hooks.done, units_.size() - 1);
  }

  void make_room(const Batch& like) override {
    take_room(like.rows, like.tokens.length, like.tokens.most_masked);
  }

  void rehearse(std::size_t /*rows*/, const Hooks& hooks,
                const std::function<void(std::size_t unit)>& ahead) const override {
    tell(hooks.need, units_.size() - 1);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      tell(hooks.need, unit_of(i));
      tell(hooks.done, unit_of(i));
    }
    tell(hooks.need, 0);
    ahead(units_.size() - 1); // The words' rows are the head's decoder.
    tell(hooks.final, head_.last());
    tell(hooks.done, 0);
    const auto final = [&](std::size_t count) { tell(hooks.final, count); };
    for (std::size_t i = layers_.size(); i-- > 0;) {
      tell(hooks.need, unit_of(i));
      layers_[i].rehearse(final);
      tell(hooks.done, unit_of(i));
    }
    tell(hooks.final, tensors_.arena_size());
    tell(hooks.done, units_.size() - 1);
  }

 private:
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
  Score forward(const TextPass& pass, const Tokens& tokens, const Hooks& hooks) {
    tell(hooks.need, units_.size() - 1);
    embedded_ = &embedding_->forward(pass, tokens.ids);
    const Matrix* x = embedded_;
    outputs_.clear();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      tell(hooks.need, unit_of(i));
      x = &layers_[i].forward(pass, *x);
      outputs_.push_back(x);
      tell(hooks.done, unit_of(i));
    }
    tell(hooks.need, 0);
    return head_.forward(pass, tokens, *x);
  }

  MaskedHead head_;                  ///< In the order of the arenas.
  std::vector<EncoderLayer> layers_; ///< From the input on.
  std::unique_ptr<TextEmbedding> embedding_;
  std::span<float> parameters_;
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
