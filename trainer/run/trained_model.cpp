#include "trainer/run/trained_model.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "trainer/checkpoint/hugging_face.h"
#include "trainer/errors.h"
#include "trainer/text/unicode.h"

namespace trainer {
namespace {

ModelOptions read_options(const std::string& folder, bool is_causal, const std::string& otherwise) {
  ModelOptions options = read_model_config(folder);
  if (options.is_causal() != is_causal) {
    throw UsageError(
        fmt::format("--checkpoint={}: is of a {}, {}", folder, options.name, otherwise));
  }
  return options;
}

} // namespace

TrainedModel::TrainedModel(const std::string& folder, bool is_causal, const std::string& otherwise)
    : options_(read_options(folder, is_causal, otherwise)), tokenizer_(load_tokenizer(folder)),
      model_(make_language_model(options_, device_)), parameters_(model_->tensors().arena_size()),
      owner_(model_->units(), {parameters_.span()}) {
  if (words() > options_.transformer.vocabulary) {
    throw DataError(fmt::format("{}: the vocabulary has {} tokens, and {} says {}", folder, words(),
                                k_model_config, options_.transformer.vocabulary));
  }
  const auto say = [](const std::string& text) {
    fmt::print(stderr, "dtrain-trainer: {}\n", text);
  };
  const std::string weights = find_weights(folder, say);
  load_weights(weights, model_->tensors(), parameters_.span());
  const std::string wrong = model_->tensors().first_not_finite(parameters_.span());
  if (!wrong.empty()) {
    throw DataError(fmt::format("{}: {} holds what is no finite number", weights, wrong));
  }
}

std::vector<float> TrainedModel::logits(const std::vector<TokenId>& ids, std::size_t length,
                                        const std::vector<std::int32_t>& places) {
  const auto count = static_cast<std::int32_t>(length);
  const std::vector<TokenId> targets(places.size(), ids.front()); // Not used: the loss is ignored.
  std::vector<float> found = model_->logits(Batch{.rows = 1, .global_rows = 1}
                                                .with(field::ids, ids)
                                                .with(field::lengths, std::span(&count, 1))
                                                .with(field::masked, places)
                                                .with(field::targets, targets),
                                            owner_);
  const std::size_t all = options_.transformer.vocabulary; // Rows of padding have no token.
  for (std::size_t i = 1; i < places.size() && all != words(); ++i) {
    std::copy_n(found.begin() + static_cast<std::ptrdiff_t>(i * all), words(),
                found.begin() + static_cast<std::ptrdiff_t>(i * words()));
  }
  found.resize(places.size() * words());
  return found;
}

void require_utf8(const std::string& text) {
  if (unicode::invalid_utf8(text) != std::string::npos) {
    throw UsageError("the text is not UTF-8");
  }
}

} // namespace trainer
