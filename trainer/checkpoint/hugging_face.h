// BERT, RoBERTa and GPT-2 as Hugging Face keeps them: a folder with config.json, the tokenizer's
// files and the weights, model.safetensors.
//
// A run puts config.json and the tokenizer's files beside its checkpoints, whose tensors have those
// names anyway, so that either folder says all about its model.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "trainer/models/model.h"

namespace trainer {

/// Writes config.json of a transformer. Throws Error.
void save_model_config(const ModelOptions& model, const std::string& folder);

/// The model that a folder's config.json describes. Throws DataError naming the file and what of it
/// this program's model cannot be.
ModelOptions read_model_config(const std::string& folder);

/// What holds a folder's weights: the newest whole checkpoint of a run, else model.safetensors; or
/// `path` itself where it is a file. `say` is told why a newer one is not used. Throws DataError.
std::string find_weights(const std::string& path,
                         const std::function<void(const std::string&)>& say);

/// Reads all parameters of a model whose table this is into an arena on the host, by their own
/// names or those of a model that has more: the pooler, the head of the next sentence, and the
/// second names of what is tied are left out. Throws DataError naming the file and the tensor that
/// is missing, misshapen or unknown.
void load_weights(const std::string& path, const TensorTable& table, std::span<float> arena);

/// Writes model.safetensors, for from_pretrained(). Throws Error.
void save_weights(const std::string& folder, const TensorTable& table,
                  std::span<const float> arena);

} // namespace trainer
