// Transformers of text: BERT and RoBERTa, encoders that learn to predict masked words,
// and GPT-2, a decoder that learns the word that comes next. What one has of its own is a plan:
// names and shapes, as Hugging Face has them, and its layer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/models/model.h"
#include "trainer/nn/transformer_layer.h"

namespace trainer {

class LanguageModel : public Model {
 public:
  /// Of each token of a batch that is to be predicted, row by row: (tokens, vocabulary).
  virtual std::vector<float> logits(const Batch& batch, ParameterOwner& owner) = 0;
};

struct TransformerPlan {
  std::string name;
  TransformerOptions options;
  EmbeddingShape embedding;
  LayerShape layer;
  std::string layers; ///< "transformer.h", of whose numbers the layers are.
  HeadNames head;
  DropoutRule dropout;
  decltype(&make_encoder_layer) make_layer;
  /// Of the normal distribution that a tensor's weights begin with.
  std::function<double(const std::string& tensor)> deviation_of;
};

TransformerPlan plan_bert(const ModelOptions& options); ///< And RoBERTa.
TransformerPlan plan_gpt2(const ModelOptions& options);

/// By its name. Throws UsageError for a shape that it cannot have.
std::unique_ptr<LanguageModel> make_language_model(const ModelOptions& options, Device& device);

/// Sets what a preset says of a model's shape; "": its first. Throws UsageError for another name.
void apply_preset(const std::string& model, const std::string& name, TransformerOptions& options);

} // namespace trainer
