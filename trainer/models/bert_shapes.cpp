#include "trainer/models/bert_shapes.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/models/bert.h"
#include "trainer/random.h"

namespace trainer {
namespace {

bool is_of_roberta(const ModelOptions& options) { return options.name == "roberta"; }

float norm_epsilon(const ModelOptions& options) {
  return static_cast<float>(options.bert.norm_epsilon);
}

/// Values [first, last) of a tensor: four from each four numbers, by the method of Box and
/// Muller. `first`: a multiple of 4.
std::vector<float> normal(std::uint64_t seed, std::uint32_t tensor, std::size_t first,
                          std::size_t last) {
  constexpr double k_deviation = 0.02;
  std::vector<float> values(last - first);
  for (std::size_t i = first; i < last; i += 4) {
    const auto bits = random_at(seed, RandomStream::weights, tensor, i / 4);
    for (std::size_t j = 0; j < 4 && i + j < last; ++j) {
      const std::size_t pair = j / 2 * 2;
      const double length =
          k_deviation * std::sqrt(-2 * std::log(1.0 - double{uniform(bits[pair])}));
      const double angle = 2 * std::numbers::pi * double{uniform(bits[pair + 1])};
      values[i - first + j] =
          static_cast<float>(length * (j % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    }
  }
  return values;
}

} // namespace

void check_bert_shape(const ModelOptions& options) {
  const BertOptions& o = options.bert;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("--model={}: {}", options.name, what));
  };
  if (o.vocabulary == 0) {
    refuse("learns from text; give --data=DIR, a folder that dtrain-trainer tokenize has written");
  }
  if (o.layers == 0 || o.heads == 0 || o.hidden == 0 || o.hidden % (o.heads * k_keep_bits) != 0) {
    refuse(fmt::format("{} wide in {} heads; --hidden must be a multiple of 16 × --heads", o.hidden,
                       o.heads));
  }
  if (o.inner == 0 || o.inner % k_keep_bits != 0) {
    refuse(fmt::format("--ff={}: must be a multiple of 16", o.inner));
  }
}

HeadNames bert_head_names(const ModelOptions& options) {
  return is_of_roberta(options)
             ? HeadNames{"lm_head.dense", "lm_head.layer_norm", "lm_head.bias"}
             : HeadNames{"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                         "cls.predictions.bias"};
}

EmbeddingShape bert_embedding_shape(const ModelOptions& options) {
  // RoBERTa's positions begin behind its padding's number.
  const std::size_t first = is_of_roberta(options) ? 2 : 0;
  return {options.bert.vocabulary,
          options.bert.max_length + first,
          first,
          is_of_roberta(options) ? 1U : 2U,
          options.bert.hidden,
          norm_epsilon(options)};
}

EncoderShape bert_layer_shape(const ModelOptions& options) {
  return {options.bert.hidden, options.bert.heads, options.bert.inner, norm_epsilon(options)};
}

DropoutRule bert_dropout(const ModelOptions& options) {
  return {options.bert.dropout, options.seed};
}

std::uint32_t bert_site(std::size_t layer) {
  constexpr std::uint32_t k_drops_a_layer = 3;
  return 1 + k_drops_a_layer * static_cast<std::uint32_t>(layer);
}

void draw_bert_weights(std::uint64_t seed, const TensorTable& tensors, std::span<float> arena) {
  constexpr std::size_t k_piece = 1 << 16;
  for (std::size_t t = 0; t < tensors.tensors().size(); ++t) {
    const Tensor& tensor = tensors[t];
    const std::size_t count = tensor.count();
    const bool is_weight = tensor.shape.size() > 1; // Else a bias, or a norm's.
    for (std::size_t first = 0; is_weight && first < count; first += k_piece) {
      const std::size_t last = std::min(first + k_piece, count);
      const auto values = normal(seed, static_cast<std::uint32_t>(t), first, last);
      for (std::size_t i = first; i < last; ++i) {
        arena[tensor.offset + tensor.place_of(i)] = values[i - first];
      }
    }
  }
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
