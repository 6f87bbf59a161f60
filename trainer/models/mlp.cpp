// The multilayer perceptron: inputs → hidden layers (ReLU) → classes, with softmax cross-entropy.
//
// The arenas hold a layer after the other, the last one first, each as [bias | weight]: backward
// finishes them in this order, the weight panel by panel.
//
// A batch is worked through in slices of 64 rows, forward and backward, adding up gradients: a
// slice's activations and its images stay in a core's caches from the first product to the last. So
// all layers are needed from the first slice to the last, and gradients are final in the last one.
//
// Letters: B rows of a slice, I inputs of a layer, O its outputs in whole panels. Cost of a step:
// 6·B·I·O FLOP a layer, less the 2·B·I·O that the input's gradient would take for the first one.
#include <algorithm>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/models/models.h"
#include "trainer/nn/dense.h"

namespace trainer {
namespace {

constexpr std::size_t k_slice_rows = 64;
constexpr std::size_t k_most_classes = 256; // Labels are bytes.

class Mlp final : public Model {
 public:
  Mlp(std::size_t inputs, const std::vector<std::size_t>& hidden, std::size_t classes,
      const CpuKernels& kernels)
      : kernels_(kernels), description_(fmt::format("mlp {}", inputs)) {
    if (classes > k_most_classes || std::count(hidden.begin(), hidden.end(), 0) > 0) {
      throw UsageError(fmt::format("an MLP of {} classes: at most {}, and no hidden layer of 0",
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
      layers_.emplace_back(name, widths[i], widths[i + 1], tensors_, kernels);
      units_.push_back({name, layers_.back().first(), layers_.back().last()});
    }
    std::reverse(layers_.begin(), layers_.end());
    for (const Dense& layer : layers_) {
      description_ += fmt::format("-{}", layer.outputs());
      activations_.emplace_back(k_slice_rows * layer.width());
      changes_.emplace_back(k_slice_rows * layer.width());
    }
    unused_ = Buffer(layers_.back().width());
  }

  const TensorTable& tensors() const override { return tensors_; }
  const std::vector<Unit>& units() const override { return units_; }
  std::string describe() const override { return description_; }

  void bind(std::span<float> parameters, std::span<float> gradients) override {
    for (Dense& layer : layers_) {
      layer.bind(parameters, gradients);
    }
  }

  void initialize(std::uint64_t seed) override {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].initialize(seed, static_cast<std::uint32_t>(i));
    }
  }

  Score evaluate(const Batch& batch) override {
    Score total;
    for (std::size_t row = 0; row < batch.rows; row += k_slice_rows) {
      const Batch slice = batch.slice(row, k_slice_rows);
      forward(slice);
      total += score(slice, 0, unused_.data());
    }
    return total;
  }

  Score forward_backward(const Batch& batch, float scale, bool accumulate,
                         const Hooks& hooks) override {
    for (std::size_t unit = units_.size(); hooks.need && unit-- > 0;) {
      hooks.need(unit);
    }
    for (const Dense& layer : layers_) {
      if (!accumulate) {
        std::fill_n(layer.bias_gradient(), layer.width(), 0.0F);
      }
    }
    Score total;
    for (std::size_t row = 0; row < batch.rows; row += k_slice_rows) {
      const Batch slice = batch.slice(row, k_slice_rows);
      forward(slice);
      total += score(slice, scale, layers_.back().bias_gradient());
      backward(slice, accumulate || row > 0, row > 0,
               row + slice.rows == batch.rows ? hooks : Hooks{});
    }
    return total;
  }

 private:
  void forward(const Batch& slice) {
    const float* x = slice.images.data(); // (B, I)
    std::size_t x_row = layers_.front().inputs();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Dense& layer = layers_[i];
      float* y = activations_[i].data();
      const bool is_last = i + 1 == layers_.size();
      layer.forward(slice.rows, x, x_row, y, is_last); // (B, O), the logits (O / 16, B, 16)
      if (!is_last) {
        kernels_.bias_relu(slice.rows, layer.width(), layer.bias(), y);
      }
      x = y;
      x_row = layer.width();
    }
  }

  /// Logits become their own gradient.
  Score score(const Batch& slice, float scale, float* bias_gradient) {
    const Dense& output = layers_.back();
    return kernels_.softmax_cross_entropy(slice.rows, output.outputs(), slice.labels.data(),
                                          output.bias(), scale, activations_.back().data(),
                                          bias_gradient);
  }

  void backward(const Batch& slice, bool accumulate, bool is_same, const Hooks& hooks) {
    const std::size_t rows = slice.rows;
    const float* dy = activations_.back().data(); // (O / 16, B, 16)
    for (std::size_t i = layers_.size(); i-- > 0;) {
      Dense& layer = layers_[i];
      const float* x = i == 0 ? slice.images.data() : activations_[i - 1].data();
      const std::size_t x_row = i == 0 ? layer.inputs() : layers_[i - 1].width();
      const std::size_t panel_size = layer.inputs() * k_panel;
      const std::size_t step =
          std::clamp((hooks.granularity - 1) / panel_size + 1, std::size_t{1}, layer.panels());
      for (std::size_t panel = 0; panel < layer.panels(); panel += step) {
        const std::size_t count = std::min(step, layer.panels() - panel);
        layer.backward_weight(rows, x, x_row, dy, panel, count, accumulate); // (I, 16·count)
        if (hooks.final) {
          hooks.final(layer.weight_first() + (panel + count) * panel_size);
        }
      }
      if (i > 0) {
        float* dx = changes_[i - 1].data(); // (I / 16, B, 16)
        const Dense& below = layers_[i - 1];
        layer.backward_input(rows, dy, dx, is_same);
        kernels_.relu_backward(rows, below.width(), x, dx, below.bias_gradient());
        dy = dx;
      }
      if (hooks.done) {
        hooks.done(layers_.size() - 1 - i);
      }
    }
  }

  const CpuKernels& kernels_;
  std::string description_;
  TensorTable tensors_;
  std::vector<Unit> units_;
  std::vector<Dense> layers_;       ///< From the input on.
  std::vector<Buffer> activations_; ///< Of each layer; the last one's: logits, then their gradient.
  std::vector<Buffer> changes_;     ///< Gradients of the activations, in panels.
  Buffer unused_{0};                ///< Bias gradient of evaluate().
};

} // namespace

std::unique_ptr<Model> make_mlp(const ModelOptions& options, Device& device) {
  const CpuKernels* kernels = device.cpu_kernels();
  if (kernels == nullptr) {
    throw UsageError("--model=mlp: computes on CPUs; use --device=cpu");
  }
  return std::make_unique<Mlp>(options.height * options.width, options.hidden, options.classes,
                               *kernels);
}

} // namespace trainer
