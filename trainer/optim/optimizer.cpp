#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

using Rule = OptimizerOptions::Rule;

struct Named {
  Rule rule;
  const char* name;
  const char* title;
};
constexpr std::array<Named, 4> k_rules = {{{Rule::sgd, "sgd", "SGD"},
                                           {Rule::adam, "adam", "Adam"},
                                           {Rule::adamw, "adamw", "AdamW"},
                                           {Rule::lamb, "lamb", "LAMB"}}};

std::size_t largest_tensor(const TensorTable& tensors) {
  std::size_t most = 0;
  for (const Tensor& tensor : tensors.tensors()) {
    most = std::max(most, tensor.size);
  }
  return most;
}

} // namespace

Rule parse_rule(const std::string& name) {
  for (const Named& one : k_rules) {
    if (name == one.name) {
      return one.rule;
    }
  }
  throw UsageError(fmt::format("--optimizer={}: must be sgd, adam, adamw or lamb", name));
}

std::string rule_title(Rule rule) {
  return std::find_if(k_rules.begin(), k_rules.end(),
                      [&](const Named& one) { return one.rule == rule; })
      ->title;
}

Optimizer::Optimizer(const OptimizerOptions& options, std::span<float> parameters,
                     std::span<const float> gradients, Device& device, const TensorTable* tensors)
    : options_(options), device_(&device), parameters_(parameters), gradients_(gradients),
      tensors_(tensors),
      direction_(device.allocate(
          options.rule == Rule::lamb && tensors != nullptr ? largest_tensor(*tensors) : 0,
          DType::f32)) {
  if (needs_whole_tensors() && tensors == nullptr) {
    throw UsageError("--optimizer=lamb: needs whole tensors, and parameter servers hold parts");
  }
  // AdamW's are Adam's: a run may go on with the other.
  const std::vector<std::string> names =
      options.rule == Rule::sgd    ? std::vector<std::string>{"sgd.momentum"}
      : options.rule == Rule::lamb ? std::vector<std::string>{"lamb.m", "lamb.v"}
                                   : std::vector<std::string>{"adam.m", "adam.v"};
  for (const std::string& name : names) {
    moments_.push_back({name, device.allocate(parameters.size(), DType::f32)});
  }
}

void Optimizer::begin_step() {
  ++step_;
  const auto t = static_cast<double>(step_);
  const double rate = options_.learning_rate;
  const bool is_sgd = options_.rule == Rule::sgd;
  const bool is_l2 = is_sgd || options_.rule == Rule::adam;
  const double correction1 = 1 - std::pow(options_.beta1, t);
  constants_.beta1 = static_cast<float>(is_sgd ? options_.momentum : options_.beta1);
  constants_.beta2 = static_cast<float>(options_.beta2);
  constants_.epsilon = static_cast<float>(options_.epsilon);
  constants_.step_size = static_cast<float>(is_sgd                  ? rate
                                            : needs_whole_tensors() ? 1 / correction1
                                                                    : rate / correction1);
  constants_.inverse_correction2 =
      static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, t)));
  constants_.l2 = static_cast<float>(is_l2 ? options_.weight_decay : 0);
  constants_.shrink =
      static_cast<float>(options_.rule == Rule::adamw ? 1 - rate * options_.weight_decay : 1);
  constants_.decay = static_cast<float>(options_.weight_decay);
  constants_.learning_rate = static_cast<float>(rate);
}

void Optimizer::update(std::size_t first, std::size_t last, const float* factor) {
  constants_.factor = factor;
  Stream& stream = device_->stream();
  const Kernels& kernels = device_->kernels();
  const float* g = gradients_.data();
  float* m = moments_.front().values.data();
  float* v = moments_.back().values.data();
  float* p = parameters_.data();
  if (options_.rule == Rule::sgd) {
    kernels.sgd(stream, last - first, constants_, g + first, m + first, p + first);
  } else if (!needs_whole_tensors()) {
    kernels.adam(stream, last - first, constants_, g + first, m + first, v + first, p + first);
  } else {
    for (const Tensor& tensor : tensors_->tensors()) {
      if (tensor.offset >= first && tensor.offset < last) {
        const std::size_t at = tensor.offset;
        kernels.lamb(stream, tensor.size, constants_, g + at, m + at, v + at, direction_.data(),
                     p + at);
      }
    }
  }
}

} // namespace trainer
