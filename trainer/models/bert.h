// BERT, and RoBERTa, which differs in the names of its tensors and in where its positions begin: an
// encoder of text that learns to tell the words that were masked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/models/model.h"

namespace trainer {

class MaskedLanguageModel : public Model {
 public:
  /// Of each masked token of a batch, row by row, a logit a word: (masked, vocabulary).
  virtual std::vector<float> logits(const Batch& batch, ParameterOwner& owner) = 0;
};

/// `options.name`: bert or roberta. Throws UsageError for a shape that no BERT has.
std::unique_ptr<MaskedLanguageModel> make_bert(const ModelOptions& options, Device& device);

/// Sets what a preset says: hello, base or large. Throws UsageError for another name.
void apply_preset(const std::string& name, BertOptions& options);

} // namespace trainer
