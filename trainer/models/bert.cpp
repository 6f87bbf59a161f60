// BERT, and RoBERTa, which differs in tensor names and in its first position.
#include "trainer/models/transformer.h"

namespace trainer {

TransformerPlan plan_bert(const ModelOptions& options) {
  const TransformerOptions& o = options.transformer;
  const bool is_roberta = options.name == "roberta";
  const auto epsilon = static_cast<float>(o.norm_epsilon);
  const std::size_t first = is_roberta ? 2 : 0; // RoBERTa's positions start after padding_idx.
  const std::string embeddings = options.name + ".embeddings.";
  return {.name = options.name,
          .options = o,
          .embedding = {.words = embeddings + "word_embeddings",
                        .positions = embeddings + "position_embeddings",
                        .types = embeddings + "token_type_embeddings",
                        .norm = embeddings + "LayerNorm",
                        .vocabulary = o.vocabulary,
                        .position_rows = o.max_length + first,
                        .first_position = first,
                        .type_rows = is_roberta ? 1U : 2U,
                        .width = o.hidden,
                        .epsilon = epsilon},
          .layer = {o.hidden, o.heads, o.inner, epsilon},
          .layers = options.name + ".encoder.layer",
          .head = is_roberta
                      ? HeadNames{"lm_head.dense", "lm_head.layer_norm", "lm_head.bias"}
                      : HeadNames{"cls.predictions.transform.dense",
                                  "cls.predictions.transform.LayerNorm", "cls.predictions.bias"},
          .dropout = {o.dropout, options.seed},
          .make_layer = make_encoder_layer,
          .deviation_of = [](const std::string&) { return 0.02; }};
}

} // namespace trainer
