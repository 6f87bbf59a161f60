// What a transformer of given weights makes of given text: logits, loss and gradients, and the
// losses of ten steps, for test_bert.py to hold beside those of Hugging Face's.
//
// usage: bert-outputs bert|roberta|gpt2 LAYERS HIDDEN HEADS FF MAX-LENGTH FOLDER
//
// FOLDER holds model.safetensors and text.safetensors (ids, lengths, masked and targets, as
// floats); outputs.safetensors is written there: logits, loss, the gradients by the parameters'
// names, and losses, before each step of AdamW on this text.
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/models/transformer.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/replicated.h"

using namespace trainer;

namespace {

std::vector<std::int32_t> numbers(const SafeTensors& from, const std::string& name) {
  for (const NamedTensor& tensor : from.tensors) {
    if (tensor.name == name) {
      return {tensor.values.begin(), tensor.values.end()};
    }
  }
  return {};
}

} // namespace

int main(int /*argc*/, char** argv) {
  const std::string folder = argv[7];
  const SafeTensors text = read_safetensors(folder + "/text.safetensors");
  const SafeTensors weights = read_safetensors(folder + "/model.safetensors");
  const std::vector<std::int32_t> ids = numbers(text, "ids");
  const std::vector<std::int32_t> lengths = numbers(text, "lengths");
  const std::vector<std::int32_t> masked = numbers(text, "masked");
  const std::vector<std::int32_t> targets = numbers(text, "targets");
  ModelOptions options{.name = argv[1]};
  options.transformer = {.layers = std::stoul(argv[2]),
                         .hidden = std::stoul(argv[3]),
                         .heads = std::stoul(argv[4]),
                         .inner = std::stoul(argv[5]),
                         .max_length = std::stoul(argv[6]),
                         .dropout = 0};
  for (const NamedTensor& tensor : weights.tensors) {
    if (tensor.name.ends_with("word_embeddings.weight") || tensor.name.ends_with("wte.weight")) {
      options.transformer.vocabulary = tensor.shape.front();
    }
  }
  options.transformer.norm_epsilon = options.name == "bert" ? 1e-12 : 1e-5;
  CpuDevice device;
  const auto model = make_language_model(options, device);
  const Buffer parameters(model->tensors().arena_size());
  const Buffer gradients(parameters.size());
  Replicated owner(model->units(), {parameters.span(), gradients.span()});
  model->tensors().import_arena(weights.tensors, parameters.span());
  const std::size_t rows = lengths.size();
  const Batch batch = Batch{.rows = rows, .global_rows = rows}
                          .with(field::ids, ids)
                          .with(field::lengths, lengths)
                          .with(field::masked, masked)
                          .with(field::targets, targets);
  std::vector<NamedTensor> all = {
      {"logits", {masked.size(), options.transformer.vocabulary}, model->logits(batch, owner)}};
  const float mean = 1.0F / static_cast<float>(rows);
  const auto pass = [&] {
    Score score;
    model->forward_backward(batch, &mean, false, owner, &score);
    return static_cast<float>(score.loss / static_cast<double>(score.count));
  };
  all.push_back({"loss", {1}, {pass()}});
  std::vector<NamedTensor> named = model->tensors().export_arena(gradients.span());
  std::move(named.begin(), named.end(), std::back_inserter(all));
  Optimizer adam(
      {.rule = OptimizerOptions::Rule::adamw, .learning_rate = 1e-3, .weight_decay = 0.01},
      parameters.span(), gradients.span(), device, &model->tensors());
  std::vector<float> losses;
  for (int step = 0; step < 10; ++step) {
    losses.push_back(pass());
    adam.begin_step();
    adam.update(0, parameters.size());
  }
  all.push_back({"losses", {losses.size()}, losses});
  write_safetensors(folder + "/outputs.safetensors", {}, all);
}
