// BERT, RoBERTa and GPT-2 as Hugging Face keeps them: a folder with config.json, the tokenizer's
// files and the weights, model.safetensors.
//
// A run also writes config.json and the tokenizer's files beside its checkpoints, whose tensors
// have the same names, so that either folder describes its model completely.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "trainer/models/model.h"
#include "trainer/text/vocabulary.h"

namespace trainer {

/// The model's description in a folder.
constexpr const char* k_model_config = "config.json";

/// Writes config.json of a transformer. `special`: of the vocabulary it was trained with. Throws
/// Error.
void save_model_config(const ModelOptions& model, const SpecialTokens& special,
                       const std::string& folder);

/// The model that a folder's config.json describes. Throws DataError naming the file and the
/// setting that this program does not support.
ModelOptions read_model_config(const std::string& folder);

/// The file with a folder's weights: the newest undamaged checkpoint of a run, else
/// model.safetensors or the index of its parts; `path` itself if it is a file. Calls `say` with the
/// reason for each newer checkpoint that it skips. Throws DataError.
std::string find_weights(const std::string& path,
                         const std::function<void(const std::string&)>& say);

/// Reads all parameters of the table's model into an arena on the host. The file may be of a larger
/// model: the pooler, the next-sentence head, and second names of tied tensors are ignored. Throws
/// DataError naming the file and the tensor that is missing, misshapen or unknown.
void load_weights(const std::string& path, const TensorTable& table, std::span<float> arena);

/// Writes model.safetensors, for from_pretrained(). Throws Error.
void save_weights(const std::string& folder, const TensorTable& table,
                  std::span<const float> arena);

} // namespace trainer
