// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
#include <cmath>

#include "trainer/models/transformer.h"

namespace trainer {

TransformerPlan plan_gpt2(const ModelOptions& options) {
  const TransformerOptions& o = options.transformer;
  const auto epsilon = static_cast<float>(o.norm_epsilon);
  // Weights that feed the residual stream start smaller with more layers.
  const double of_residuals = 0.02 / std::sqrt(2.0 * static_cast<double>(o.layers));
  return {.name = options.name,
          .options = o,
          .embedding = {.words = "transformer.wte",
                        .positions = "transformer.wpe",
                        .types = "",
                        .norm = "",
                        .vocabulary = o.vocabulary,
                        .position_rows = o.max_length,
                        .width = o.hidden},
          .layer = {o.hidden, o.heads, o.inner, epsilon},
          .layers = "transformer.h",
          .head = {.dense = "", .norm = "transformer.ln_f", .bias = ""},
          .dropout = {o.dropout, options.seed},
          .make_layer = make_decoder_layer,
          .deviation_of = [of_residuals](const std::string& tensor) {
            return tensor.ends_with("c_proj.weight") ? of_residuals : 0.02;
          }};
}

} // namespace trainer
