#include "trainer/nn/dense_stack.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {

DenseStack::DenseStack(Device& device, std::size_t inputs, const ModelOptions& options,
                       bool wants_input, TensorTable& tensors)
    : device_(device), wants_input_(wants_input) {
  const std::vector<std::size_t>& hidden = options.hidden;
  if (std::count(hidden.begin(), hidden.end(), 0) > 0) {
    throw UsageError("a hidden layer of width 0: each has at least 1");
  }
  std::vector<std::size_t> widths = {inputs};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(options.classes);
  const std::size_t count = widths.size() - 1;
  for (std::size_t i = count; i-- > 0;) {
    const std::string name = i + 1 == count       ? "output"
                             : hidden.size() == 1 ? "hidden"
                                                  : fmt::format("hidden{}", i + 1);
    layers_.push_back(make_dense(device, name, widths[i], widths[i + 1], i == 0, tensors));
    outputs_.emplace_back(0);
    changes_.emplace_back(0);
  }
  std::reverse(layers_.begin(), layers_.end());
}

std::string DenseStack::describe() const {
  std::string text = fmt::format("{}", layers_.front()->inputs());
  for (const auto& layer : layers_) {
    text += fmt::format("-{}", layer->outputs());
  }
  return text;
}

double DenseStack::flops() const {
  double sum = 0;
  for (const auto& layer : layers_) {
    const bool has_input = wants_input_ || layer != layers_.front();
    sum += (has_input ? 6.0 : 4.0) * static_cast<double>(layer->inputs() * layer->outputs());
  }
  return sum;
}

void DenseStack::initialize(std::uint64_t seed, std::uint32_t first, std::span<float> arena) const {
  for (const auto& layer : layers_) {
    layer->initialize(seed, first++, arena);
  }
}

void DenseStack::make_outputs(std::size_t rows) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::size_t values = rows * layers_[i]->row(layers_[i]->outputs());
    if (outputs_[i].size() < values) {
      outputs_[i] = Buffer(0); // Frees the old buffer first, which waits for its readers.
      outputs_[i] = device_.allocate(values, DType::f32);
    }
  }
}

void DenseStack::make_room(std::size_t rows) {
  make_outputs(rows);
  for (std::size_t i = wants_input_ ? 0 : 1; i < layers_.size(); ++i) {
    const std::size_t values = rows * layers_[i]->row(layers_[i]->inputs());
    if (changes_[i].size() < values) {
      changes_[i] = Buffer(0);
      changes_[i] = device_.allocate(values, DType::f32);
    }
    layers_[i]->make_room();
  }
}

void DenseStack::forward(std::size_t rows, const float* x) {
  make_outputs(rows);
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
    layers_[i]->forward(memory(*layers_[i]), rows, x, true, outputs_[i].data());
    x = outputs_[i].data();
  }
  last_input_ = x;
}

void DenseStack::score(std::span<const std::int32_t> labels, const float* scale, bool accumulate,
                       Score* to) {
  if (scale != nullptr) {
    make_room(labels.size());
  }
  const bool wants_change = scale != nullptr && (wants_input_ || layers_.size() > 1);
  has_last_change_ = layers_.back()->score(memory(*layers_.back()), labels, last_input_, scale,
                                           accumulate, outputs_.back().data(),
                                           wants_change ? changes_.back().data() : nullptr, to);
}

bool DenseStack::are_together(std::size_t rows) const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [&](const auto& layer) { return layer->is_small(rows); });
}

void DenseStack::write(ParameterOwner& owner) const {
  for (const auto& layer : layers_) {
    owner.write(layer->unit());
  }
}

const float* DenseStack::backward(std::size_t rows, const float* x, bool accumulate, bool is_same,
                                  ParameterOwner* owner) {
  const bool are_together = this->are_together(rows);
  products_.clear();
  const float* dy = outputs_.back().data();
  for (std::size_t i = layers_.size(); i-- > 0;) {
    Dense& layer = *layers_[i];
    const float* const input = i == 0 ? x : outputs_[i - 1].data();
    if (are_together) {
      products_.push_back(layer.weight_product(memory(layer), rows, input, dy, accumulate));
    } else {
      layer.backward_weight(memory(layer), rows, input, dy, accumulate, owner);
    }
    if (i > 0 || wants_input_) {
      float* const dbias =
          i == 0 ? nullptr : layers_[i - 1]->bias_gradient(memory(*layers_[i - 1]));
      if (i + 1 < layers_.size() || !has_last_change_) {
        layer.backward_input(memory(layer), rows, dy, input, is_same, accumulate, dbias,
                             changes_[i].data());
      }
      dy = changes_[i].data();
    }
    if (owner != nullptr && !are_together) {
      owner->done(layer.unit());
      if (i > 0 || wants_input_) {
        owner->write(layer.unit() + 1);
      }
    }
  }
  if (are_together) {
    if (owner != nullptr) {
      write(*owner);
    }
    device_.kernels().layers->weight_gradients(device_.stream(), products_.size(),
                                               products_.data());
    for (std::size_t i = layers_.size(); owner != nullptr && i-- > 0;) {
      owner->final(layers_[i]->weight_range().last);
      owner->done(layers_[i]->unit());
    }
    if (owner != nullptr && wants_input_) {
      owner->write(layers_.front()->unit() + 1);
    }
  }
  return wants_input_ ? dy : nullptr;
}

} // namespace trainer
