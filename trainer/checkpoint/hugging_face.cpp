#include "trainer/checkpoint/hugging_face.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "submit/errors.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_file.h"
#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/json_file.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* k_weights = "model.safetensors";
constexpr const char* k_index = "model.safetensors.index.json"; ///< Of weights in several files.
constexpr std::int64_t k_roberta_offset = 2; ///< Positions that it counts and never uses.
constexpr std::int64_t k_widest = 1 << 24;   ///< What a size is at most, against overflow.

/// What a model for other tasks has besides, and what is stored twice: beginnings of names.
constexpr std::string_view k_not_ours[] = {"bert.pooler.", "roberta.pooler.",
                                           "cls.seq_relationship", "bert.embeddings.position_ids",
                                           "roberta.embeddings.position_ids"};

/// Names that a tied tensor has besides its own, which need not be there.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> k_tied = {
    {{"lm_head.weight", "transformer.wte.weight"},
     {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
     {"cls.predictions.decoder.bias", "cls.predictions.bias"},
     {"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
     {"lm_head.decoder.bias", "lm_head.bias"}}};

class ModelConfig {
 public:
  explicit ModelConfig(const std::string& folder)
      : path_((fs::path(folder) / k_model_config).string()) {
    std::ifstream file(path_, std::ios::binary);
    if (!file) {
      throw DataError(fmt::format("{}: there is none; give the --checkpoint-dir of a run with "
                                  "--model=bert, roberta or gpt2, or a folder of Hugging Face's",
                                  path_));
    }
    values_ = parse_shallow_json(file);
    if (!values_.is_object()) {
      throw DataError(fmt::format("{}: is no JSON object", path_));
    }
  }

  std::size_t size(const char* key) const {
    const auto found = values_.find(key);
    if (found == values_.end() || !found->is_number_integer() || *found < 1 || *found > k_widest) {
      refuse(key, "a whole number of 1 or more");
    }
    return found->get<std::size_t>();
  }
  double number(const char* key, double otherwise) const {
    const auto found = values_.find(key);
    if (found != values_.end() && (!found->is_number() || *found < 0 || *found >= 1)) {
      refuse(key, "a number from 0 to less than 1");
    }
    return found == values_.end() ? otherwise : found->get<double>();
  }
  /// One of `names`, the first where it is left out.
  std::string word(const char* key, std::initializer_list<const char*> names) const {
    const auto found = values_.find(key);
    for (const char* name : names) {
      if (found == values_.end() || found->is_null() || *found == name) {
        return name;
      }
    }
    refuse(key, fmt::format("{}", fmt::join(names, " or ")));
  }
  [[noreturn]] void refuse(const char* key, const std::string& wanted) const {
    const auto found = values_.find(key);
    throw DataError(fmt::format(
        "{}: \"{}\" {}; this program's model has {}", path_, key,
        found == values_.end() ? "is missing" : "is " + dtrain::printable(found->dump()), wanted));
  }
  bool has(const char* key) const { return values_.contains(key); }
  bool is_set(const char* key) const { return has(key) && !values_[key].is_null(); }

 private:
  std::string path_;
  Json values_;
};

bool is_left_out(const NamedTensor& tensor, const SafeTensors& all, const TensorTable& table) {
  const std::string& name = tensor.name;
  if (std::any_of(std::begin(k_not_ours), std::end(k_not_ours),
                  [&](std::string_view start) { return name.starts_with(start); })) {
    return true;
  }
  if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) {
    return true; // GPT-2's masks.
  }
  const bool is_checkpoint = all.metadata.contains("format") && all.metadata.contains("step");
  return is_checkpoint && // Whose moments are adam.m.NAME and the like.
         std::any_of(table.tensors().begin(), table.tensors().end(),
                     [&](const Tensor& own) { return name.ends_with("." + own.name); });
}

/// LayerNorm.gamma and .beta, as the first BERTs have them, and GPT-2's names without the head.
std::string todays_name(std::string name) {
  for (const char* part : {"wte.", "wpe.", "h.", "ln_f."}) {
    if (name.starts_with(part)) {
      return "transformer." + name;
    }
  }
  for (const auto& [old, today] :
       {std::pair("LayerNorm.gamma", "weight"), std::pair("LayerNorm.beta", "bias")}) {
    if (name.ends_with(old)) {
      name.replace(name.rfind('.') + 1, std::string::npos, today);
    }
  }
  return name;
}

/// Names of tensors, by the file of the index's folder that has them.
std::map<std::string, std::set<std::string>> read_index(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const Json index = parse_shallow_json(file);
  const Json places = index.is_object() ? index.value("weight_map", Json()) : Json();
  if (!places.is_object() || places.empty()) {
    throw DataError(fmt::format("{}: has no \"weight_map\" of tensors and their files", path));
  }
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, place] : places.items()) {
    const std::string name = place.is_string() ? place.get<std::string>() : "";
    if (!is_file_name(name)) {
      throw DataError(fmt::format("{}: says that {} is in {}, which is no file of the folder", path,
                                  dtrain::printable(tensor), dtrain::printable(place.dump())));
    }
    files[name].insert(tensor);
  }
  return files;
}

/// Weights in several files.
SafeTensors read_indexed(const std::string& path) {
  SafeTensors all;
  for (const auto& entry : read_index(path)) {
    const std::string file = (fs::path(path).parent_path() / entry.first).string();
    const std::set<std::string>& tensors = entry.second;
    SafeTensors content = read_safetensors(file);
    std::erase_if(content.tensors,
                  [&](const NamedTensor& tensor) { return !tensors.contains(tensor.name); });
    if (content.tensors.size() != tensors.size()) {
      throw DataError(fmt::format("{}: has {} of the {} tensors that {} says are in it", file,
                                  content.tensors.size(), tensors.size(), k_index));
    }
    std::move(content.tensors.begin(), content.tensors.end(), std::back_inserter(all.tensors));
  }
  return all;
}

Json bert_config(const ModelOptions& model) {
  const TransformerOptions& bert = model.transformer;
  const bool is_roberta = model.name == "roberta";
  Json config = {{"architectures", {is_roberta ? "RobertaForMaskedLM" : "BertForMaskedLM"}},
                 {"model_type", model.name},
                 {"vocab_size", bert.vocabulary},
                 {"hidden_size", bert.hidden},
                 {"num_hidden_layers", bert.layers},
                 {"num_attention_heads", bert.heads},
                 {"intermediate_size", bert.inner},
                 {"hidden_act", "gelu"},
                 {"hidden_dropout_prob", bert.dropout},
                 {"attention_probs_dropout_prob", bert.dropout},
                 {"max_position_embeddings",
                  static_cast<std::int64_t>(bert.max_length) + (is_roberta ? k_roberta_offset : 0)},
                 {"type_vocab_size", is_roberta ? 1 : 2},
                 {"layer_norm_eps", bert.norm_epsilon},
                 {"pad_token_id", is_roberta ? 1 : 0},
                 {"tie_word_embeddings", true}};
  if (is_roberta) {
    config["bos_token_id"] = 0;
    config["eos_token_id"] = 2;
  }
  return config;
}

Json gpt2_config(const TransformerOptions& gpt, const SpecialTokens& special) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", gpt.vocabulary},
          {"n_embd", gpt.hidden},
          {"n_layer", gpt.layers},
          {"n_head", gpt.heads},
          {"n_inner", gpt.inner},
          {"n_positions", gpt.max_length},
          {"activation_function", "gelu_new"},
          {"embd_pdrop", gpt.dropout},
          {"resid_pdrop", gpt.dropout},
          {"attn_pdrop", gpt.dropout},
          {"layer_norm_epsilon", gpt.norm_epsilon},
          {"bos_token_id", special.first},
          {"eos_token_id", special.last},
          {"tie_word_embeddings", true}};
}

TransformerOptions read_gpt2(const ModelConfig& config) {
  config.word("activation_function", {"gelu_new"});
  TransformerOptions gpt{.layers = config.size("n_layer"),
                         .hidden = config.size("n_embd"),
                         .heads = config.size("n_head"),
                         .max_length = config.size("n_positions"),
                         .vocabulary = config.size("vocab_size"),
                         .dropout = config.number("resid_pdrop", 0.1),
                         .norm_epsilon = config.number("layer_norm_epsilon", 1e-5)};
  gpt.inner = config.is_set("n_inner") ? config.size("n_inner") : 4 * gpt.hidden;
  return gpt;
}

} // namespace

void save_model_config(const ModelOptions& model, const SpecialTokens& special,
                       const std::string& folder) {
  make_folder(folder);
  const Json config =
      model.name == "gpt2" ? gpt2_config(model.transformer, special) : bert_config(model);
  const std::string text = config.dump(2) + "\n";
  AtomicFile file((fs::path(folder) / k_model_config).string());
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}
ModelOptions read_model_config(const std::string& folder) {
  const ModelConfig config(folder);
  ModelOptions model;
  model.name =
      config.has("model_type") ? config.word("model_type", {"bert", "roberta", "gpt2"}) : "bert";
  if (model.name == "gpt2") {
    model.transformer = read_gpt2(config);
    return model;
  }
  const bool is_roberta = model.name == "roberta";
  config.word("hidden_act", {"gelu"});
  config.word("position_embedding_type", {"absolute"});
  const std::size_t positions = config.size("max_position_embeddings");
  const auto unused = static_cast<std::size_t>(is_roberta ? k_roberta_offset : 0);
  if (positions <= unused) {
    config.refuse("max_position_embeddings", "3 or more");
  }
  model.transformer = {.layers = config.size("num_hidden_layers"),
                       .hidden = config.size("hidden_size"),
                       .heads = config.size("num_attention_heads"),
                       .inner = config.size("intermediate_size"),
                       .max_length = positions - unused,
                       .vocabulary = config.size("vocab_size"),
                       .dropout = config.number("hidden_dropout_prob", 0.1),
                       .norm_epsilon = config.number("layer_norm_eps", 1e-12)};
  return model;
}

std::string find_weights(const std::string& path,
                         const std::function<void(const std::string&)>& say) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return path;
  }
  if (const auto newest = newest_whole_checkpoint(path, say)) {
    return *newest;
  }
  for (const char* name : {k_weights, k_index}) {
    const fs::path weights = fs::path(path) / name;
    if (fs::exists(weights, error)) {
      return weights.string();
    }
  }
  throw DataError(
      fmt::format("{}: holds neither a whole checkpoint of a run nor {}", path, k_weights));
}

void load_weights(const std::string& path, const TensorTable& table, std::span<float> arena) {
  SafeTensors content = path.ends_with(k_index) ? read_indexed(path) : read_checkpoint(path);
  std::erase_if(content.tensors,
                [&](const NamedTensor& tensor) { return is_left_out(tensor, content, table); });
  for (NamedTensor& tensor : content.tensors) {
    tensor.name = todays_name(std::move(tensor.name));
  }
  const auto is_there = [&](std::string_view name) {
    return std::any_of(content.tensors.begin(), content.tensors.end(),
                       [&](const NamedTensor& tensor) { return tensor.name == name; });
  };
  for (const auto& tied : k_tied) {
    if (is_there(tied.second)) {
      std::erase_if(content.tensors,
                    [&](const NamedTensor& tensor) { return tensor.name == tied.first; });
    } else {
      for (NamedTensor& tensor : content.tensors) {
        tensor.name = tensor.name == tied.first ? tied.second : tensor.name;
      }
    }
  }
  for (const NamedTensor& tensor : content.tensors) {
    check_is_known(path, tensor.name, table, {""});
  }
  try {
    table.import_arena(content.tensors, arena);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path, error.what()));
  }
}

void save_weights(const std::string& folder, const TensorTable& table,
                  std::span<const float> arena) {
  std::vector<TensorShape> shapes;
  for (const Tensor& tensor : table.tensors()) {
    shapes.push_back({tensor.name, tensor.shape});
  }
  make_folder(folder);
  SafeTensorsWriter file((fs::path(folder) / k_weights).string(), {{"format", "pt"}}, shapes);
  std::vector<float> values;
  for (const Tensor& tensor : table.tensors()) {
    values.resize(tensor.count());
    tensor.read(arena.subspan(tensor.offset, tensor.size), values);
    file.write(values);
  }
  file.commit();
}

} // namespace trainer
