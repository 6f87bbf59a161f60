// Transformers for text: BERT and RoBERTa, encoders that learn to predict masked words, and GPT-2,
// a decoder that learns the next word. Each is described by a plan: names and shapes of tensors, as
// in Hugging Face's models, and the kind of layer.
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
  /// The logits of each token to predict in a batch, row by row: (tokens, vocabulary).
  virtual std::vector<float> logits(const Batch& batch, ParameterOwner& owner) = 0;
};

struct TransformerPlan {
  std::string name;
  TransformerOptions options;
  EmbeddingShape embedding;
  LayerShape layer;
  std::string layers; ///< Prefix of the numbered layers: "transformer.h".
  HeadNames head;
  DropoutRule dropout;
  decltype(&make_encoder_layer) make_layer;
  /// Standard deviation of a tensor's initial weights, which are normally distributed.
  std::function<double(const std::string& tensor)> deviation_of;
};

TransformerPlan plan_bert(const ModelOptions& options); ///< BERT or RoBERTa.
TransformerPlan plan_gpt2(const ModelOptions& options);

/// Makes the model named in the options. Throws UsageError for an invalid shape.
std::unique_ptr<LanguageModel> make_language_model(const ModelOptions& options, Device& device);

/// Sets the shape of a preset; "": the model's first preset. Throws UsageError for an unknown name.
void apply_preset(const std::string& model, const std::string& name, TransformerOptions& options);

} // namespace trainer
