#include "trainer/models/mlp.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/errors.h"

namespace trainer {

namespace {

constexpr std::size_t k_slice_rows = 64;

/// Rows [first, first + rows) of a batch.
Batch slice_of(const Batch& batch, std::size_t first) {
  const std::size_t rows = std::min(k_slice_rows, batch.rows - first);
  const std::size_t features = batch.images.size() / batch.rows;
  return {rows, batch.images.subspan(first * features, rows * features),
          batch.labels.subspan(first, rows)};
}

void add(Score& total, const Score& score) {
  total.loss += score.loss;
  total.correct += score.correct;
  total.count += score.count;
}

} // namespace

Mlp::Mlp(const MlpShape& shape, const CpuKernels& kernels)
    : kernels_(&kernels), hidden_(shape.inputs, shape.hidden, kernels),
      output_(shape.hidden, shape.classes, kernels), activation_(k_slice_rows * hidden_.width()),
      hidden_gradient_(k_slice_rows * hidden_.width()), logits_(k_slice_rows * k_panel),
      scratch_(shape.classes * hidden_.width()), unused_(k_panel) {
  if (shape.hidden == 0 || shape.hidden % k_panel != 0 || shape.classes > k_panel) {
    throw UsageError(fmt::format("a hidden layer of {} and {} classes: hidden must be a multiple "
                                 "of {}, classes at most {}",
                                 shape.hidden, shape.classes, k_panel, k_panel));
  }
}

std::size_t Mlp::parameter_count() const {
  return output_.parameter_count() + hidden_.parameter_count();
}

void Mlp::bind(std::span<float> parameters, std::span<float> gradients) {
  output_.bind(parameters.data(), gradients.data());
  const std::size_t start = output_.parameter_count();
  hidden_.bind(parameters.data() + start, gradients.data() + start);
}

void Mlp::initialize(std::uint64_t seed) {
  hidden_.initialize(seed, 0);
  output_.initialize(seed, 1);
}

void Mlp::forward(const Batch& slice) {
  hidden_.forward(slice.rows, slice.images.data(), hidden_.inputs(), activation_.data()); // (B, H)
  kernels_->bias_relu(slice.rows, hidden_.width(), hidden_.bias(), activation_.data());
  output_.forward(slice.rows, activation_.data(), hidden_.width(), logits_.data()); // (B, C)
}

void Mlp::backward(const Batch& slice, bool first, std::size_t step,
                   const std::function<void(std::size_t panels)>& done) {
  const std::size_t rows = slice.rows;
  output_.backward_weight(rows, activation_.data(), hidden_.width(), logits_.data(), 0,
                          output_.panels(), !first); // (H, C)
  output_.backward_input(rows, logits_.data(), hidden_gradient_.data(), scratch_.data());
  kernels_->relu_backward(rows, hidden_.width(), activation_.data(), hidden_gradient_.data(),
                          hidden_.bias_gradient()); // (H/16, B, 16)
  for (std::size_t panel = 0; panel < hidden_.panels(); panel += step) {
    const std::size_t count = std::min(step, hidden_.panels() - panel);
    hidden_.backward_weight(rows, slice.images.data(), hidden_.inputs(), hidden_gradient_.data(),
                            panel, count, !first); // (I, 16·count)
    done(panel + count);
  }
}

Score Mlp::evaluate(const Batch& batch) {
  Score total;
  for (std::size_t row = 0; row < batch.rows; row += k_slice_rows) {
    const Batch slice = slice_of(batch, row);
    forward(slice);
    add(total, kernels_->softmax_cross_entropy(slice.rows, output_.outputs(), slice.labels.data(),
                                               output_.bias(), 0, logits_.data(), unused_.data()));
  }
  return total;
}

Score Mlp::forward_backward(const Batch& batch, float scale, std::size_t granularity,
                            const GradientsReady& ready) {
  std::fill_n(output_.bias_gradient(), output_.width(), 0.0F);
  std::fill_n(hidden_.bias_gradient(), hidden_.width(), 0.0F);
  const std::size_t before = output_.parameter_count() + hidden_.width();
  const std::size_t panel_size = hidden_.inputs() * k_panel;
  const std::size_t step =
      std::clamp((granularity + panel_size - 1) / panel_size, std::size_t{1}, hidden_.panels());
  Score total;
  for (std::size_t row = 0; row < batch.rows; row += k_slice_rows) {
    const Batch slice = slice_of(batch, row);
    forward(slice);
    add(total, kernels_->softmax_cross_entropy(slice.rows, output_.outputs(), slice.labels.data(),
                                               output_.bias(), scale, logits_.data(),
                                               output_.bias_gradient()));
    const bool last = row + slice.rows == batch.rows;
    backward(slice, row == 0, last ? step : hidden_.panels(), [&](std::size_t panels) {
      if (last) {
        ready(before + panels * panel_size);
      }
    });
  }
  return total;
}

std::vector<NamedTensor> Mlp::export_arena(std::span<const float> arena) const {
  std::vector<NamedTensor> tensors;
  const auto add_layer = [&](const char* name, const Dense& layer, std::span<const float> run) {
    tensors.push_back({fmt::format("{}.bias", name),
                       {layer.outputs()},
                       {run.begin(), run.begin() + static_cast<std::ptrdiff_t>(layer.outputs())}});
    tensors.push_back({fmt::format("{}.weight", name),
                       {layer.outputs(), layer.inputs()},
                       layer.export_weight(run)});
  };
  add_layer("output", output_, arena.first(output_.parameter_count()));
  add_layer("hidden", hidden_, arena.subspan(output_.parameter_count()));
  return tensors;
}

void Mlp::import_arena(const std::vector<NamedTensor>& tensors, std::span<float> arena) const {
  const auto find = [&](const std::string& name, std::vector<std::size_t> shape) {
    const auto it = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const NamedTensor& t) { return t.name == name; });
    if (it == tensors.end()) {
      throw DataError(fmt::format("no tensor {}", name));
    }
    if (it->shape != shape) {
      throw DataError(fmt::format("tensor {} has shape [{}] where the model's is [{}]", name,
                                  fmt::join(it->shape, ", "), fmt::join(shape, ", ")));
    }
    return std::span<const float>(it->values);
  };
  const auto take = [&](const char* name, const Dense& layer, std::span<float> run) {
    const auto bias = find(fmt::format("{}.bias", name), {layer.outputs()});
    std::copy(bias.begin(), bias.end(), run.begin());
    layer.import_weight(find(fmt::format("{}.weight", name), {layer.outputs(), layer.inputs()}),
                        run);
  };
  take("output", output_, arena.first(output_.parameter_count()));
  take("hidden", hidden_, arena.subspan(output_.parameter_count()));
}

} // namespace trainer
