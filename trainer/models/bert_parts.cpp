#include "trainer/models/bert_parts.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "trainer/errors.h"
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

std::string BertBase::describe() const {
  return fmt::format("{} of {} layers, {} wide, {} heads, {} within, {} words", name_,
                     options_.layers, options_.hidden, options_.heads, options_.inner,
                     options_.vocabulary);
}

void BertBase::rehearse(std::size_t /*rows*/, ParameterOwner& owner,
                        const std::function<void(std::size_t unit)>& ahead) const {
  const std::size_t embeddings = units().size() - 1; // Behind the head and the layers.
  owner.need(embeddings);
  for (std::size_t unit = embeddings; --unit > 0;) {
    owner.need(unit);
    owner.done(unit);
  }
  owner.need(0);
  ahead(embeddings); // The words' rows are the head's decoder.
  finish(owner, 0);
  for (std::size_t unit = 1; unit < embeddings; ++unit) {
    owner.need(unit);
    rehearse_layer(options_.layers - unit, owner);
    owner.done(unit);
  }
  finish(owner, embeddings);
}

void BertBase::take_room(std::size_t rows, std::size_t length, std::size_t most_masked) {
  rows_ = rows;
  length_ = length;
  most_masked_ = most_masked;
  make_rooms(rows, length, most_masked);
}

TextPass BertBase::pass_of(const Batch& batch, bool is_training, bool accumulate) {
  const Tokens& tokens = batch.tokens;
  if (tokens.length > options_.max_length) {
    throw UsageError(fmt::format("--max-length={}: the text's rows have {} tokens",
                                 options_.max_length, tokens.length));
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

} // namespace trainer
