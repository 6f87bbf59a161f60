#include "trainer/nn/cpu/perceptron.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_most_classes = 256; // Labels are bytes.

} // namespace

Perceptron::Perceptron(std::size_t inputs, const std::vector<std::size_t>& hidden,
                       std::size_t classes, std::size_t most_rows, const CpuKernels& kernels,
                       TensorTable& tensors)
    : kernels_(kernels) {
  if (classes > k_most_classes || std::count(hidden.begin(), hidden.end(), 0) > 0) {
    throw UsageError(fmt::format("a model of {} classes: at most {}, and no hidden layer of 0",
                                 classes, k_most_classes));
  }
  std::vector<std::size_t> widths = {inputs};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(classes);
  const std::size_t count = widths.size() - 1;
  for (std::size_t i = count; i-- > 0;) {
    const std::string name = i + 1 == count       ? "output"
                             : hidden.size() == 1 ? "hidden"
                                                  : fmt::format("hidden{}", i + 1);
    layers_.emplace_back(name, widths[i], widths[i + 1], tensors, kernels);
  }
  std::reverse(layers_.begin(), layers_.end());
  for (const Dense& layer : layers_) {
    activations_.emplace_back(most_rows * layer.width());
    changes_.emplace_back(0);
  }
  unused_ = Buffer(layers_.back().width());
}

std::string Perceptron::describe() const {
  std::string text = fmt::format("{}", layers_.front().inputs());
  for (const Dense& layer : layers_) {
    text += fmt::format("-{}", layer.outputs());
  }
  return text;
}

void Perceptron::initialize(std::uint64_t seed, std::uint32_t first, std::span<float> arena) const {
  for (const Dense& layer : layers_) {
    layer.initialize(seed, first++, arena);
  }
}

void Perceptron::clear_bias_gradients() {
  for (const Dense& layer : layers_) {
    std::fill_n(Dense::bias_gradient(memory(layer)), layer.width(), 0.0F);
  }
}

void Perceptron::forward(std::size_t rows, const float* x) {
  std::size_t x_row = layers_.front().inputs();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Dense& layer = layers_[i];
    float* y = activations_[i].data();
    const bool is_last = i + 1 == layers_.size();
    layer.forward(memory(layer), rows, x, x_row, y, is_last); // (B, O), logits (O / 16, B, 16)
    if (!is_last) {
      kernels_.bias_relu(rows, layer.width(), Dense::bias(memory(layer)), y);
    }
    x = y;
    x_row = layer.width();
  }
}

Score Perceptron::score_for_backward(std::span<const std::uint8_t> labels, float scale) {
  const Dense& output = layers_.back();
  return kernels_.softmax_cross_entropy(
      labels.size(), output.outputs(), labels.data(), Dense::bias(memory(output)), scale,
      activations_.back().data(), Dense::bias_gradient(memory(output)));
}

void Perceptron::make_room(std::size_t rows, bool wants_input) {
  for (std::size_t i = wants_input ? 0 : 1; i < layers_.size(); ++i) {
    const std::size_t values = padded(layers_[i].inputs()) * rows;
    if (changes_[i].size() < values) {
      changes_[i] = Buffer(values);
    }
    layers_[i].make_room();
  }
}

Score Perceptron::score(std::span<const std::uint8_t> labels) {
  const Dense& output = layers_.back();
  return kernels_.softmax_cross_entropy(labels.size(), output.outputs(), labels.data(),
                                        Dense::bias(memory(output)), 0, activations_.back().data(),
                                        unused_.data());
}

const float* Perceptron::backward(std::size_t rows, const float* x, bool accumulate, bool is_same,
                                  bool wants_input, ParameterOwner* owner) {
  make_room(rows, wants_input);
  const std::size_t granularity = owner == nullptr ? SIZE_MAX : owner->granularity();
  const float* dy = activations_.back().data(); // (O / 16, B, 16)
  for (std::size_t i = layers_.size(); i-- > 0;) {
    Dense& layer = layers_[i];
    const float* input = i == 0 ? x : activations_[i - 1].data();
    const std::size_t input_row = i == 0 ? layer.inputs() : layers_[i - 1].width();
    const std::size_t panel_size = layer.inputs() * k_panel;
    const std::size_t step =
        std::clamp((granularity - 1) / panel_size + 1, std::size_t{1}, layer.panels());
    for (std::size_t panel = 0; panel < layer.panels(); panel += step) {
      const std::size_t count = std::min(step, layer.panels() - panel);
      layer.backward_weight(memory(layer), rows, input, input_row, dy, panel, count,
                            accumulate); // (I, 16·count)
      if (owner != nullptr) {
        owner->final(layer.weight_first() + (panel + count) * panel_size);
      }
    }
    if (i > 0 || wants_input) {
      const Buffer& change = changes_[i];
      layer.backward_input(memory(layer), rows, dy, change.data(), is_same); // (I / 16, B, 16)
      if (i > 0) {
        const Dense& below = layers_[i - 1];
        kernels_.relu_backward(rows, below.width(), input, change.data(),
                               Dense::bias_gradient(memory(below)));
      }
      dy = change.data();
    }
    if (owner != nullptr) {
      owner->done(layer.unit());
    }
  }
  return wants_input ? dy : nullptr;
}

} // namespace trainer
