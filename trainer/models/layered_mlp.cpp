// The multilayer perceptron over the layers that every device has: what a GPU computes. Weights are
// row-major, (outputs, inputs), as they are published; the arenas, names and first parameters are
// those of the CPU's own (mlp.cpp), so that one's checkpoint is the other's.
//
// Letters: B rows, I inputs of a layer, O its outputs. Cost of a step: as Perceptron's.
#include <cmath>

#include <fmt/format.h>

#include "trainer/device/host_view.h"
#include "trainer/errors.h"
#include "trainer/models/models.h"
#include "trainer/random.h"

namespace trainer {
namespace {

class LayeredMlp final : public Model {
 public:
  LayeredMlp(const ModelOptions& options, Device& device)
      : device_(device), layers_(device.kernels().layers) {
    constexpr std::size_t k_most = 256; // Labels are bytes.
    if (options.classes > k_most) {
      throw UsageError(fmt::format("a model of {} classes: at most {}", options.classes, k_most));
    }
    std::vector<std::size_t> widths = {options.height * options.width};
    widths.insert(widths.end(), options.hidden.begin(), options.hidden.end());
    widths.push_back(options.classes);
    const std::size_t count = widths.size() - 1;
    sizes_.resize(count);
    for (std::size_t i = count; i-- > 0;) {
      const std::string name = i + 1 == count               ? "output"
                               : options.hidden.size() == 1 ? "hidden"
                                                            : fmt::format("hidden{}", i + 1);
      const std::size_t first = tensors_.arena_size();
      const std::size_t bias = tensors_.add(name + ".bias", {widths[i + 1]});
      const std::size_t weight = tensors_.add(name + ".weight", {widths[i + 1], widths[i]});
      sizes_[i] = {widths[i], widths[i + 1], tensors_[bias].offset, tensors_[weight].offset};
      units_.push_back({name, first, tensors_.arena_size()});
    }
  }

  const TensorTable& tensors() const override { return tensors_; }
  const std::vector<Unit>& units() const override { return units_; }
  std::string describe() const override {
    std::string text = fmt::format("mlp {}", sizes_.front().inputs);
    for (const Size& size : sizes_) {
      text += fmt::format("-{}", size.outputs);
    }
    return text;
  }

  void bind(std::span<float> parameters, std::span<float> gradients) override {
    parameters_ = parameters;
    gradients_ = gradients;
  }

  /// Glorot uniform, as Keras' Dense: ±sqrt(6 / (inputs + outputs)), bias 0.
  void initialize(std::uint64_t seed) override {
    const HostView view(device_, parameters_);
    for (std::size_t layer = 0; layer < sizes_.size(); ++layer) {
      const Size& size = sizes_[layer];
      const float limit = std::sqrt(6.0F / static_cast<float>(size.inputs + size.outputs));
      for (std::size_t i = 0; i < size.inputs; ++i) {
        for (std::size_t o = 0; o < size.outputs; ++o) {
          const auto bits = random_at(seed, RandomStream::weights,
                                      static_cast<std::uint32_t>(layer), i * size.outputs + o);
          view.values()[size.weight + o * size.inputs + i] = limit * (2 * uniform(bits[0]) - 1);
        }
      }
    }
    view.write_back();
  }

  void evaluate(const Batch& batch, Score* to) override { forward(batch, 0, to); }

  void forward_backward(const Batch& batch, float scale, bool accumulate, const Hooks& hooks,
                        Score* to) override {
    for (std::size_t unit = units_.size(); hooks.need && unit-- > 0;) {
      hooks.need(unit);
    }
    forward(batch, scale, to);
    Stream& stream = device_.stream();
    for (std::size_t i = sizes_.size(); i-- > 0;) {
      const Size& size = sizes_[i];
      const DenseShape shape{batch.rows, size.inputs, size.outputs};
      const float* x = i == 0 ? batch.images.data() : outputs_[i - 1].data();
      const float* dy = changes_[i].data(); // (B, O)
      layers_->dense_backward_weight(stream, shape, x, dy, accumulate,
                                     gradients_.data() + size.weight,
                                     gradients_.data() + size.bias);
      if (i > 0) {
        layers_->dense_backward_input(stream, shape, dy, parameters_.data() + size.weight, x,
                                      changes_[i - 1].data()); // (B, I)
      }
      const std::size_t unit = sizes_.size() - 1 - i;
      if (hooks.final) {
        hooks.final(units_[unit].last);
      }
      if (hooks.done) {
        hooks.done(unit);
      }
    }
  }

 private:
  struct Size {
    std::size_t inputs;
    std::size_t outputs;
    std::size_t bias; ///< Where it lies in the arenas.
    std::size_t weight;
  };

  /// Room for as many rows as have come so far.
  void make_room(std::size_t rows) {
    if (rows <= rows_) {
      return;
    }
    outputs_.clear(); // Which waits for what reads them.
    changes_.clear();
    for (const Size& size : sizes_) {
      outputs_.push_back(device_.allocate(rows * size.outputs, DType::f32));
      changes_.push_back(device_.allocate(rows * size.outputs, DType::f32));
    }
    rows_ = rows;
  }

  /// Each layer's outputs, and the gradient of the last one's.
  void forward(const Batch& batch, float scale, Score* to) {
    make_room(batch.rows);
    Stream& stream = device_.stream();
    const float* x = batch.images.data(); // (B, I)
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const Size& size = sizes_[i];
      layers_->dense(stream, {batch.rows, size.inputs, size.outputs}, x,
                     parameters_.data() + size.weight, parameters_.data() + size.bias,
                     i + 1 < sizes_.size(), outputs_[i].data());
      x = outputs_[i].data();
    }
    layers_->softmax_cross_entropy(stream, batch.rows, sizes_.back().outputs, x,
                                   batch.labels.data(), scale, changes_.back().data(), to);
  }

  Device& device_;
  const LayerKernels* layers_;
  TensorTable tensors_;
  std::vector<Unit> units_;
  std::vector<Size> sizes_; ///< From the input on.
  std::span<float> parameters_;
  std::span<float> gradients_;
  std::size_t rows_ = 0;
  std::vector<Buffer> outputs_; ///< Of each layer; the last one's: logits.
  std::vector<Buffer> changes_; ///< Their gradients.
};

} // namespace

std::unique_ptr<Model> make_layered_mlp(const ModelOptions& options, Device& device) {
  return std::make_unique<LayeredMlp>(options, device);
}

} // namespace trainer
