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

/// Floats of a moment in a file that are in memory at a time. Whole pages, as these are released.
constexpr std::size_t k_piece = std::size_t{1} << 18;

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
                     std::span<const float> gradients, Device& device, const TensorTable* tensors,
                     const std::vector<ArenaRange>& own, const std::string& folder)
    : options_(options), device_(&device), parameters_(parameters), gradients_(gradients),
      tensors_(tensors), is_in_file_(!folder.empty()),
      direction_(device.allocate(
          options.rule == Rule::lamb && tensors != nullptr ? largest_tensor(*tensors) : 0,
          DType::f32)) {
  if (needs_whole_tensors() && tensors == nullptr) {
    throw UsageError("--optimizer=lamb: needs whole tensors, and parameter servers hold parts");
  }
  std::size_t count = 0;
  for (const ArenaRange& range :
       own.empty() ? std::vector{ArenaRange{0, parameters.size()}} : own) {
    own_.push_back({range, count});
    count += range.size();
  }
  // AdamW's are Adam's: a run may go on with the other.
  const std::vector<std::string> names =
      options.rule == Rule::sgd    ? std::vector<std::string>{"sgd.momentum"}
      : options.rule == Rule::lamb ? std::vector<std::string>{"lamb.m", "lamb.v"}
                                   : std::vector<std::string>{"adam.m", "adam.v"};
  for (const std::string& name : names) {
    moments_.push_back(
        {name, is_in_file_ ? device.allocate_paged(count) : device.allocate(count, DType::f32)});
    if (is_in_file_) {
      device.move_to_file(moments_.back().values.span(), folder);
    }
  }
}

void Optimizer::begin_step() {
  ++step_;
  const auto t = static_cast<double>(step_ - skipped_);
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

void Optimizer::put_away() const {
  for (const Moment& moment : moments_) {
    if (is_in_file_) {
      device_->release(moment.values.span());
    }
  }
}

void Optimizer::skip_step() {
  ++step_;
  ++skipped_;
}

void Optimizer::update(std::size_t first, std::size_t last, const float* factor) {
  constants_.factor = factor;
  Stream& stream = device_->stream();
  const Kernels& kernels = device_->kernels();
  const auto one = [&](std::size_t at, std::size_t count, std::size_t moment) {
    for (const Moment& each : moments_) {
      if (is_in_file_) {
        device_->fetch(each.values.span().subspan(moment, count));
      }
    }
    const float* g = gradients_.data() + at;
    float* m = moments_.front().values.data() + moment;
    float* v = moments_.back().values.data() + moment;
    float* p = parameters_.data() + at;
    if (options_.rule == Rule::sgd) {
      kernels.sgd(stream, count, constants_, g, m, p);
    } else if (needs_whole_tensors()) {
      kernels.lamb(stream, count, constants_, g, m, v, direction_.data(), p);
    } else {
      kernels.adam(stream, count, constants_, g, m, v, p);
    }
    if (is_in_file_) {
      for (const Moment& each : moments_) {
        device_->release(each.values.span().subspan(moment, count));
      }
    }
  };
  if (needs_whole_tensors()) {
    for (const Tensor& tensor : tensors_->tensors()) {
      if (tensor.offset >= first && tensor.offset < last) {
        one(tensor.offset, tensor.size, tensor.offset);
      }
    }
    return;
  }
  const std::size_t piece = is_in_file_ ? k_piece : SIZE_MAX;
  const auto begin = std::partition_point(own_.begin(), own_.end(),
                                          [&](const Own& own) { return own.range.last <= first; });
  for (auto own = begin; own != own_.end() && own->range.first < last; ++own) {
    std::size_t moment = own->offset + std::max(first, own->range.first) - own->range.first;
    const std::size_t end = own->offset + std::min(last, own->range.last) - own->range.first;
    while (moment < end) {
      const std::size_t next = std::min(end, (moment / piece + 1) * piece);
      one(own->range.first + moment - own->offset, next - moment, moment);
      moment = next;
    }
  }
}

} // namespace trainer
