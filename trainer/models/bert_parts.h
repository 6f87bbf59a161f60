// What is the same in BERT for the CPU (bert.cpp) and for any device (layered_bert.cpp): names and
// shapes of its tensors, what they begin with, and when there has to be room for a pass.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/models/bert.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

HeadNames bert_head_names(const ModelOptions& options);
EmbeddingShape bert_embedding_shape(const ModelOptions& options);
EncoderShape bert_layer_shape(const ModelOptions& options);
DropoutRule bert_dropout(const ModelOptions& options);
/// Of a layer's three dropouts the first one's site; the embedding's is 0.
std::uint32_t bert_site(std::size_t layer);

/// Weights to begin with, of a normal distribution, in all of an arena's matrices.
void draw_bert_weights(std::uint64_t seed, const TensorTable& tensors, std::span<float> arena);

class BertBase : public MaskedLanguageModel {
 public:
  const TensorTable& tensors() const final { return tensors_; }
  std::string describe() const final;
  void rehearse(std::size_t rows, ParameterOwner& owner,
                const std::function<void(std::size_t unit)>& ahead) const final;

 protected:
  explicit BertBase(const ModelOptions& options)
      : name_(options.name), options_(options.bert), shape_(bert_layer_shape(options)) {}

  /// For passes of so many rows, instead of what there was.
  virtual void make_rooms(std::size_t rows, std::size_t length, std::size_t most_masked) = 0;
  /// Tells what the backward of layer `number`, from the input on, tells.
  virtual void rehearse_layer(std::size_t number, ParameterOwner& owner) const = 0;
  void take_room(std::size_t rows, std::size_t length, std::size_t most_masked);
  /// Of a batch, for which there is room then. Throws UsageError where its rows are too long.
  TextPass pass_of(const Batch& batch, bool is_training, bool accumulate);

  std::string name_;
  BertOptions options_;
  EncoderShape shape_;
  TensorTable tensors_;

 private:
  std::size_t rows_ = 0;
  std::size_t length_ = 0;
  std::size_t most_masked_ = 0;
};

} // namespace trainer
