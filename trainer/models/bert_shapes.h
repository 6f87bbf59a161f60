// Names and shapes of BERT's tensors, and what they begin with.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/models/model.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

/// Throws UsageError for a shape that no BERT has.
void check_bert_shape(const ModelOptions& options);

HeadNames bert_head_names(const ModelOptions& options);
EmbeddingShape bert_embedding_shape(const ModelOptions& options);
EncoderShape bert_layer_shape(const ModelOptions& options);
DropoutRule bert_dropout(const ModelOptions& options);
/// Of a layer's three dropouts the first one's site; the embedding's is 0.
std::uint32_t bert_site(std::size_t layer);

/// Weights to begin with, of a normal distribution, in all of an arena's matrices.
void draw_bert_weights(std::uint64_t seed, const TensorTable& tensors, std::span<float> arena);

} // namespace trainer
