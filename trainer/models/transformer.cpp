#include "trainer/models/transformer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <numbers>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"
#include "trainer/nn/masked_head.h"
#include "trainer/nn/text_embedding.h"
#include "trainer/random.h"

namespace trainer {
namespace {

/// Values [first, last) of a tensor, normally distributed: four from each four random numbers (Box
/// and Muller). `first` is a multiple of 4.
std::vector<float> normal(std::uint64_t seed, std::uint32_t tensor, double deviation,
                          std::size_t first, std::size_t last) {
  std::vector<float> values(last - first);
  for (std::size_t i = first; i < last; i += 4) {
    const auto bits = random_at(seed, RandomStream::weights, tensor, i / 4);
    for (std::size_t j = 0; j < 4 && i + j < last; ++j) {
      const std::size_t pair = j / 2 * 2;
      const double length = deviation * std::sqrt(-2 * std::log(1.0 - double{uniform(bits[pair])}));
      const double angle = 2 * std::numbers::pi * double{uniform(bits[pair + 1])};
      values[i - first + j] =
          static_cast<float>(length * (j % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    }
  }
  return values;
}

/// Draws initial weights of all matrices of an arena, on all cores of the host: 10^9 values would
/// take one core half a minute.
void draw_weights(std::uint64_t seed, const TensorTable& tensors,
                  const std::function<double(const std::string&)>& deviation_of,
                  std::span<float> arena) {
  constexpr std::size_t k_piece = 1 << 16;
  struct Piece {
    std::uint32_t tensor;
    std::size_t first;
    std::size_t last;
  };
  std::vector<Piece> pieces;
  for (std::size_t t = 0; t < tensors.tensors().size(); ++t) {
    const std::size_t count = tensors[t].count();
    const bool is_weight = tensors[t].shape.size() > 1; // Otherwise a bias, or a norm's gain.
    for (std::size_t first = 0; is_weight && first < count; first += k_piece) {
      pieces.push_back({static_cast<std::uint32_t>(t), first, std::min(first + k_piece, count)});
    }
  }
  std::atomic<std::size_t> next = 0;
  const auto draw = [&] {
    for (std::size_t at = next++; at < pieces.size(); at = next++) {
      const auto& [number, first, last] = pieces[at];
      const Tensor& tensor = tensors[number];
      const auto values = normal(seed, number, deviation_of(tensor.name), first, last);
      for (std::size_t i = first; i < last; ++i) {
        arena[tensor.offset + tensor.place_of(i)] = values[i - first];
      }
    }
  };
  const std::size_t threads =
      std::min<std::size_t>(std::thread::hardware_concurrency(), pieces.size());
  std::vector<std::future<void>> others;
  for (std::size_t i = 1; i < threads; ++i) {
    others.push_back(std::async(std::launch::async, draw));
  }
  draw();
  for (std::future<void>& other : others) {
    other.get();
  }
}

/// The site of the first of a layer's three dropouts; the embedding's site is 0.
std::uint32_t site_of(std::size_t layer) {
  constexpr std::uint32_t k_drops_a_layer = 3;
  return 1 + k_drops_a_layer * static_cast<std::uint32_t>(layer);
}

class Transformer final : public LanguageModel {
 public:
  Transformer(TransformerPlan plan, Device& device)
      : plan_(std::move(plan)), options_(plan_.options), context_(device),
        head_(context_, plan_.head, plan_.layer, options_.vocabulary, tensors_) {
    for (std::size_t i = options_.layers; i-- > 0;) {
      layers_.push_back(plan_.make_layer(context_, fmt::format("{}.{}", plan_.layers, i),
                                         plan_.layer, plan_.dropout, site_of(i), tensors_));
    }
    std::reverse(layers_.begin(), layers_.end());
    embedding_.emplace(context_, plan_.embedding, plan_.dropout, 0, tensors_);
  }

  const TensorTable& tensors() const override { return tensors_; }
  std::string describe() const override {
    return fmt::format("{} of {} layers, {} wide, {} heads, {} within, {} words", plan_.name,
                       options_.layers, options_.hidden, options_.heads, options_.inner,
                       options_.vocabulary);
  }

  /// For samples as long as the longest so far; attention counts in full under a causal mask, too,
  /// as MFU is usually given (Chowdhery et al. 2022, PaLM, appendix B).
  double flops() const override {
    const auto width = static_cast<double>(options_.hidden);
    const auto tokens = static_cast<double>(length_);
    const double layer =
        8 * width * width + 4 * width * static_cast<double>(options_.inner) + 4 * width * tokens;
    const double head = 2 * width * static_cast<double>(options_.vocabulary) +
                        (plan_.head.dense.empty() ? 0 : 2 * width * width);
    return 3 * (static_cast<double>(options_.layers) * tokens * layer +
                static_cast<double>(most_masked_) * head);
  }

  bool takes_rounded() const override { return true; }

  void initialize(std::uint64_t seed, std::span<float> arena) const override {
    draw_weights(seed, tensors_, plan_.deviation_of, arena);
    embedding_->initialize(arena);
    head_.initialize(arena);
    for (const auto& layer : layers_) {
      layer->initialize(arena);
    }
  }

  void evaluate(const Batch& batch, ParameterOwner& owner, Score* to) override {
    const TextPass pass = pass_of(batch, false, false);
    forward(pass, batch, owner);
    head_.score(pass, batch, nullptr, to);
  }

  std::vector<float> logits(const Batch& batch, ParameterOwner& owner) override {
    const std::span<const std::int32_t> masked = batch[field::masked];
    const ConstTypedPointer found = forward(pass_of(batch, false, false), batch, owner);
    std::vector<std::int32_t> places(masked.size());
    context_.stream.copy(masked.data(), places.data(), masked.size_bytes());
    std::vector<float> all;
    for (std::size_t slot = 0; slot < places.size(); ++slot) {
      if (places[slot] >= 0) {
        const std::size_t first = all.size();
        all.resize(first + options_.vocabulary);
        copy_logits(found + slot * head_.logits_row(), std::span(all).subspan(first));
      }
    }
    return all;
  }

  void draw(const Batch& batch) override {
    fit(batch);
    embedding_->draw(batch, length_);
    for (const auto& layer : layers_) {
      layer->draw(batch, length_);
    }
  }

  void compute(const Batch& batch, const float* scale, bool accumulate, ParameterOwner& owner,
               Score* to) override {
    const TextPass pass = pass_of(batch, true, accumulate);
    forward(pass, batch, owner);
    head_.score(pass, batch, scale, to);
    owner.write(embedding_->unit()); // The words' rows are the head's decoder.
    owner.write(head_.unit());
    head_.backward(of_head_, embedding_->words(of_embedding_), pass, batch, change_);
    finish(owner, head_.unit());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      TransformerLayer& layer = *layers_[i];
      const UnitMemory memory = owner.need(layer.unit());
      const ConstTypedPointer x = inputs_[i];
      if (options_.recompute && i + 1 < layers_.size()) { // The last layer's are still there.
        layer.forward(memory, pass, x);
      }
      layer.backward(memory, pass, x, change_, scratch_, owner);
      owner.done(layer.unit());
      owner.write(layer.unit() + 1);
    }
    embedding_->backward(of_embedding_, pass, batch[field::ids].data(), change_);
    finish(owner, embedding_->unit());
  }

  void rehearse(std::size_t /*rows*/, ParameterOwner& owner,
                const std::function<void(std::size_t unit)>& ahead) const override {
    owner.need(embedding_->unit());
    for (const auto& layer : layers_) {
      owner.need(layer->unit());
      owner.done(layer->unit());
    }
    owner.need(head_.unit());
    owner.write(embedding_->unit()); // The word embeddings are the head's decoder.
    owner.write(head_.unit());
    ahead(embedding_->unit());
    finish(owner, head_.unit());
    for (std::size_t i = layers_.size(); i-- > 0;) {
      owner.need(layers_[i]->unit());
      layers_[i]->rehearse(owner);
      owner.done(layers_[i]->unit());
      owner.write(layers_[i]->unit() + 1);
    }
    finish(owner, embedding_->unit());
  }

  void make_room(const Batch& like) override {
    take_room(like.rows, like[field::Name::ids].width, like[field::Name::masked].width);
  }

 private:
  /// Allocates activations for passes of so many rows, replacing the old ones.
  void take_room(std::size_t rows, std::size_t length, std::size_t most_masked) {
    rows_ = rows;
    length_ = length;
    most_masked_ = most_masked;
    scratch_ = {};
    embedding_->make_room(rows, length);
    head_.make_room(rows * most_masked);
    std::shared_ptr<LayerRoom> room;
    for (const auto& layer : layers_) {
      if (room == nullptr || !options_.recompute) {
        room = std::make_shared<LayerRoom>(context_, plan_.layer, rows, length);
      }
      layer->make_room(rows, length, room);
    }
    change_ = context_.activations(rows * length * plan_.layer.width);
    scratch_ = LayerScratch(context_, plan_.layer, rows, length);
  }

  /// Allocates activations for a batch if needed. Throws UsageError if its rows are too long.
  void fit(const Batch& batch) {
    const std::size_t length = batch[field::Name::ids].width;
    const std::size_t most_masked = batch[field::Name::masked].width;
    if (length > options_.max_length) {
      throw UsageError(
          fmt::format("--max-length={}: must be at least {}, the tokens of a row of the text",
                      options_.max_length, length));
    }
    if (batch.rows > rows_ || length != length_ || most_masked > most_masked_) {
      take_room(batch.rows, length, most_masked);
    }
  }

  /// The pass of a batch, once there is room for it. If the host can read its words, throws
  /// DataError for those outside the vocabulary.
  TextPass pass_of(const Batch& batch, bool is_training, bool accumulate) {
    fit(batch);
    if (context_.device.is_host()) {
      check_words(batch[field::ids]);
      check_words(batch[field::targets]);
    }
    return {.rows = batch.rows,
            .length = length_,
            .lengths = batch[field::lengths].data(),
            .is_training = is_training,
            .accumulate = accumulate};
  }

  void check_words(std::span<const std::int32_t> ids) const {
    for (const std::int32_t id : ids) {
      if (static_cast<std::size_t>(id) >= options_.vocabulary) { // Negative ids become large.
        throw DataError(fmt::format("the text has token {}, and the model's vocabulary has {} "
                                    "tokens; use the vocabulary that the text was tokenized with",
                                    id, options_.vocabulary));
      }
    }
  }

  /// Copies the logits of a slot as float32.
  void copy_logits(ConstTypedPointer from, std::span<float> to) const {
    if (from.type == DType::f32) {
      context_.stream.copy(from.memory, to.data(), to.size_bytes());
      return;
    }
    std::vector<Bf16Value> rounded(to.size());
    context_.stream.copy(from.memory, rounded.data(), rounded.size() * sizeof(Bf16Value));
    std::copy(rounded.begin(), rounded.end(), to.begin());
  }

  /// Computes the logits. The embedding is needed to the end: its words are the head's decoder.
  ConstTypedPointer forward(const TextPass& pass, const Batch& batch, ParameterOwner& owner) {
    of_embedding_ = owner.need(embedding_->unit());
    ConstTypedPointer x = embedding_->forward(of_embedding_, pass, batch[field::ids].data());
    inputs_.clear();
    for (const auto& layer : layers_) {
      inputs_.push_back(x);
      x = layer->forward(owner.need(layer->unit()), pass, x);
      owner.done(layer->unit());
    }
    of_head_ = owner.need(head_.unit());
    return head_.forward(of_head_, embedding_->words(of_embedding_), pass, batch, x);
  }

  TransformerPlan plan_;
  const TransformerOptions& options_;
  LayerContext context_;
  TensorTable tensors_;
  MaskedHead head_;                                       ///< First in the arenas.
  std::vector<std::unique_ptr<TransformerLayer>> layers_; ///< From the input on.
  std::optional<TextEmbedding> embedding_;
  UnitMemory of_head_; ///< Valid during a pass.
  UnitMemory of_embedding_;
  std::vector<ConstTypedPointer> inputs_; ///< Inputs of the layers, (N, H) each.
  Buffer change_{0};                      ///< (N, H): the gradient that backward passes down.
  LayerScratch scratch_;
  // Capacity of the activations.
  std::size_t rows_ = 0;
  std::size_t length_ = 0;
  std::size_t most_masked_ = 0;
};

void check_shape(const ModelOptions& options) {
  const TransformerOptions& o = options.transformer;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("--model={}: {}", options.name, what));
  };
  if (o.vocabulary == 0) {
    refuse("trains on text; give --data=DIR, a folder that dtrain-trainer tokenize has written");
  }
  for (const auto& [option, value] : {std::pair("--layers", o.layers), std::pair("--ff", o.inner),
                                      std::pair("--heads", o.heads)}) {
    if (value == 0) {
      refuse(fmt::format("{}=0: must be at least 1", option));
    }
  }
  if (o.hidden == 0 || o.hidden % o.heads != 0) {
    refuse(fmt::format("--hidden={} with --heads={}: --hidden must be a multiple of --heads",
                       o.hidden, o.heads));
  }
}

struct Preset {
  const char* model; ///< "bert" covers RoBERTa.
  const char* name;
  std::size_t layers, hidden, heads, inner;
};
constexpr Preset k_presets[] = {
    {"bert", "hello", 6, 256, 8, 512},     {"bert", "base", 12, 768, 12, 3072},
    {"bert", "large", 24, 1024, 16, 4096}, {"gpt2", "124M", 12, 768, 12, 3072},
    {"gpt2", "355M", 24, 1024, 16, 4096},  {"gpt2", "774M", 36, 1280, 20, 5120},
    {"gpt2", "1558M", 48, 1600, 25, 6400}};

} // namespace

std::unique_ptr<LanguageModel> make_language_model(const ModelOptions& options, Device& device) {
  check_shape(options);
  return std::make_unique<Transformer>(
      options.name == "gpt2" ? plan_gpt2(options) : plan_bert(options), device);
}

void apply_preset(const std::string& model, const std::string& name, TransformerOptions& options) {
  const std::string_view family = model == "roberta" ? "bert" : std::string_view(model);
  std::vector<std::string_view> names;
  for (const Preset& preset : k_presets) {
    if (preset.model != family) {
      continue;
    }
    names.emplace_back(preset.name);
    if (preset.name == name || (name.empty() && names.size() == 1)) {
      options.layers = preset.layers;
      options.hidden = preset.hidden;
      options.heads = preset.heads;
      options.inner = preset.inner;
      return;
    }
  }
  throw UsageError(
      fmt::format("--preset={}: --model={} has {}", name, model, fmt::join(names, ", ")));
}

} // namespace trainer
