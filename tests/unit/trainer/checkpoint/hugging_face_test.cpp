#include "trainer/checkpoint/hugging_face.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"
#include "trainer/models/transformer.h"

using namespace trainer;

namespace {

ModelOptions small(const std::string& name) {
  return {.name = name,
          .transformer = {.layers = 1,
                          .hidden = 32,
                          .heads = 2,
                          .inner = 48,
                          .max_length = 12,
                          .vocabulary = 40,
                          .norm_epsilon = 1e-5}};
}

struct Weights {
  explicit Weights(const std::string& name)
      : model(make_language_model(small(name), device)), parameters(model->tensors().arena_size()) {
    model->initialize(3, parameters.span());
  }
  /// Its tensors as `change` leaves them, in a file; and what load_weights() makes of that.
  std::vector<NamedTensor> load(const std::function<void(std::vector<NamedTensor>&)>& change) {
    const TempFolder folder;
    std::vector<NamedTensor> tensors = model->tensors().export_arena(parameters.span());
    change(tensors);
    write_safetensors(folder / "model.safetensors", {}, tensors);
    const Buffer loaded(parameters.size());
    load_weights(find_weights(folder.path(), {}), model->tensors(), loaded.span());
    return model->tensors().export_arena(loaded.span());
  }
  std::string refused(const std::function<void(std::vector<NamedTensor>&)>& change) {
    return message_of<DataError>([&] { load(change); });
  }
  bool holds(const std::vector<NamedTensor>& loaded) {
    const std::vector<NamedTensor> own = model->tensors().export_arena(parameters.span());
    return std::equal(own.begin(), own.end(), loaded.begin(), loaded.end(),
                      [](const NamedTensor& a, const NamedTensor& b) {
                        return a.name == b.name && a.values == b.values;
                      });
  }

  CpuDevice device;
  std::unique_ptr<LanguageModel> model;
  Buffer parameters;
};

NamedTensor& named(std::vector<NamedTensor>& tensors, const std::string& name) {
  return *std::find_if(tensors.begin(), tensors.end(),
                       [&](const NamedTensor& tensor) { return tensor.name == name; });
}

} // namespace

TEST_CASE("a folder's config.json says the model that was saved, of each transformer") {
  for (const char* name : {"bert", "roberta", "gpt2"}) {
    const TempFolder folder;
    save_model_config(small(name), {}, folder.path());
    const ModelOptions read = read_model_config(folder.path());
    CHECK(read.name == name);
    CHECK(shape_text(read) == shape_text(small(name)));
    CHECK(read.transformer.max_length == 12);
    CHECK(read.transformer.vocabulary == 40);
    CHECK(read.transformer.norm_epsilon == 1e-5);
  }
}

TEST_CASE("a config.json of a model that this program has not is refused, the key named") {
  const TempFolder folder;
  const auto refused = [&](const std::string& text) {
    folder.write("config.json", text);
    return message_of<DataError>([&] { read_model_config(folder.path()); });
  };
  CHECK(contains(refused("[]"), "no JSON object"));
  CHECK(contains(refused("{\"model_type\":\"t5\"}"), "\"model_type\" is \"t5\""));
  CHECK(contains(refused("{\"hidden_act\":\"gelu_new\"}"), "\"hidden_act\""));
  CHECK(contains(refused("{\"max_position_embeddings\":8}"), "\"num_hidden_layers\" is missing"));
  CHECK(contains(refused("{\"max_position_embeddings\":-8}"), "\"max_position_embeddings\" is -8"));
  const std::string nested = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  CHECK(contains(refused("{\"model_type\":" + nested + "}"), "no JSON object"));
}

TEST_CASE(
    "GPT-2's weights load without the model's name in front, and with its masks and its head") {
  Weights weights("gpt2");
  CHECK(weights.holds(weights.load([](auto&) {})));
  CHECK(weights.holds(weights.load([&](auto& tensors) {
    for (NamedTensor& tensor : tensors) {
      tensor.name = tensor.name.substr(std::string("transformer.").size());
    }
    tensors.push_back({"h.0.attn.bias", {2, 2}, {1, 0, 1, 1}});
    tensors.push_back(named(tensors, "wte.weight"));
    tensors.back().name = "lm_head.weight";
  })));
}

TEST_CASE("weights load under the names of BERT's first release, and of what is tied or not ours") {
  for (const std::string name : {"bert", "roberta"}) {
    Weights weights(name);
    const std::string head = name == "bert" ? "cls.predictions" : "lm_head";
    const std::string words = name + ".embeddings.word_embeddings.weight";
    CHECK(weights.holds(weights.load([](auto&) {})));
    CHECK(weights.holds(weights.load([&](auto& tensors) {
      tensors.push_back(named(tensors, words));
      tensors.back().name = head + ".decoder.weight";
      tensors.push_back(named(tensors, head + ".bias"));
      tensors.back().name = head + ".decoder.bias";
      tensors.push_back({name + ".pooler.dense.weight", {2, 2}, {1, 2, 3, 4}});
    })));
    CHECK(weights.holds(weights.load([&](auto& tensors) {
      named(tensors, words).name = head + ".decoder.weight";
      named(tensors, name + ".embeddings.LayerNorm.weight").name =
          name + ".embeddings.LayerNorm.gamma";
    })));
  }
}

TEST_CASE("a tensor that is missing, misshapen or unknown is named") {
  Weights weights("bert");
  const std::string bias = "bert.encoder.layer.0.intermediate.dense.bias";
  CHECK(contains(weights.refused([&](auto& tensors) {
    tensors.erase(tensors.begin() + (&named(tensors, bias) - tensors.data()));
  }),
                 "no tensor " + bias));
  CHECK(contains(weights.refused([&](auto& tensors) {
    named(tensors, bias).shape = {2, 24};
  }),
                 bias + " has shape [2, 24] where the model's is [48]"));
  CHECK(contains(weights.refused([&](auto& tensors) {
    tensors.push_back({"bert.encoder.layer.1.output.dense.bias", {1}, {0}});
  }),
                 "has a tensor bert.encoder.layer.1.output.dense.bias"));
  const TempFolder empty;
  CHECK(contains(message_of<DataError>([&] { find_weights(empty.path(), {}); }),
                 "neither a whole checkpoint of a run nor model.safetensors"));
}

TEST_CASE(
    "weights in several files are read by their index, which names files of its folder only") {
  Weights weights("bert");
  const std::vector<NamedTensor> all =
      weights.model->tensors().export_arena(weights.parameters.span());
  const TempFolder folder;
  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  const std::string first = folder / "model-00001-of-00002.safetensors";
  write_safetensors(first, {}, std::vector(all.begin(), all.begin() + half));
  write_safetensors(folder / "model-00002-of-00002.safetensors", {},
                    std::vector(all.begin() + half, all.end()));
  const auto index = [&](const std::string& of_first) {
    std::string map;
    for (const NamedTensor& tensor : all) {
      const bool is_second = &tensor - all.data() >= half;
      map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"" +
             (is_second ? "model-00002-of-00002.safetensors" : of_first) + "\"";
    }
    folder.write("model.safetensors.index.json",
                 "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + map + "}}");
  };
  const Buffer loaded(weights.parameters.size());
  const auto load = [&] {
    load_weights(find_weights(folder.path(), {}), weights.model->tensors(), loaded.span());
  };
  index("model-00001-of-00002.safetensors");
  load();
  CHECK(weights.holds(weights.model->tensors().export_arena(loaded.span())));

  index("model-00002-of-00002.safetensors");
  CHECK(contains(message_of<DataError>(load), "model-00002-of-00002.safetensors: has " +
                                                  std::to_string(all.size() - std::size_t(half)) +
                                                  " of the " + std::to_string(all.size()) +
                                                  " tensors that"));
  for (const char* const outside :
       {"../model-00001-of-00002.safetensors", "..", ".", "", "model/", "/model.safetensors"}) {
    index(outside);
    CHECK(contains(message_of<DataError>(load), "which is no file of the folder"));
  }
  index("model-00001-of-00002.safetensors");
  std::filesystem::remove(first);
  CHECK(contains(message_of<DataError>(load), first));
  folder.write("model.safetensors.index.json", "{\"weight_map\":[]}");
  CHECK(contains(message_of<DataError>(load), "has no \"weight_map\""));
  folder.write("model.safetensors.index.json", "{\"weight_map\":" + std::string(1'000'000, '[') +
                                                   std::string(1'000'000, ']') + "}");
  CHECK(contains(message_of<DataError>(load), "has no \"weight_map\""));
}
