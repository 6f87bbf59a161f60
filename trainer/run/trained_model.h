// A trained transformer with its tokenizer, to ask things of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/models/transformer.h"
#include "trainer/strategy/replicated.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

class TrainedModel {
 public:
  /// Of the --checkpoint-dir of a run, whose newest whole checkpoint it is, or of a folder of
  /// Hugging Face's. Throws DataError naming the file, and UsageError with `otherwise` where it is
  /// not causal, or is.
  TrainedModel(const std::string& folder, bool is_causal, const std::string& otherwise);

  Tokenizer& tokenizer() { return *tokenizer_; }
  std::size_t words() const { return tokenizer_->vocabulary().size(); }
  std::size_t max_length() const { return options_.transformer.max_length; }

  /// Of each of the `places` in a text, in this order, a logit a word: (places, words()). Behind
  /// the first `length` of `ids` is padding.
  std::vector<float> logits(const std::vector<TokenId>& ids, std::size_t length,
                            const std::vector<std::int32_t>& places);

 private:
  ModelOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  CpuDevice device_;
  std::unique_ptr<LanguageModel> model_;
  Buffer parameters_;
  Replicated owner_;
};

/// Throws UsageError unless a text is UTF-8.
void require_utf8(const std::string& text);

} // namespace trainer
