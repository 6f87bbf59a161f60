// The multilayer perceptron: inputs → hidden layers (ReLU) → classes, with softmax cross-entropy.
//
// The arenas hold a layer after the other, the last one first, each as [bias | weight]: backward
// finishes them in this order, the weight panel by panel.
//
// A batch is worked through in slices of 64 rows, forward and backward, adding up gradients: a
// slice's activations and its images stay in a core's caches from the first product to the last. So
// all layers are needed from the first slice to the last, and gradients are final in the last one.
#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/models/models.h"
#include "trainer/nn/perceptron.h"

namespace trainer {
namespace {

constexpr std::size_t k_mlp_slice = 64; ///< Rows.

class Mlp final : public Model {
 public:
  Mlp(std::size_t inputs, const std::vector<std::size_t>& hidden, std::size_t classes,
      const CpuKernels& kernels)
      : layers_(inputs, hidden, classes, k_mlp_slice, kernels, tensors_, units_) {}

  const TensorTable& tensors() const override { return tensors_; }
  const std::vector<Unit>& units() const override { return units_; }
  std::string describe() const override { return "mlp " + layers_.describe(); }

  void bind(std::span<float> parameters, std::span<float> gradients) override {
    layers_.bind(parameters, gradients);
  }
  void initialize(std::uint64_t seed) override { layers_.initialize(seed, 0); }

  Score evaluate(const Batch& batch) override {
    Score total;
    for (std::size_t row = 0; row < batch.rows; row += k_mlp_slice) {
      const Batch slice = batch.slice(row, k_mlp_slice);
      layers_.forward(slice.rows, slice.images.data());
      total += layers_.score(slice.labels);
    }
    return total;
  }

  Score forward_backward(const Batch& batch, float scale, bool accumulate,
                         const Hooks& hooks) override {
    for (std::size_t unit = units_.size(); hooks.need && unit-- > 0;) {
      hooks.need(unit);
    }
    if (!accumulate) {
      layers_.clear_bias_gradients();
    }
    const Hooks none;
    Score total;
    for (std::size_t row = 0; row < batch.rows; row += k_mlp_slice) {
      const Batch slice = batch.slice(row, k_mlp_slice);
      layers_.forward(slice.rows, slice.images.data());
      total += layers_.score_for_backward(slice.labels, scale);
      layers_.backward(slice.rows, slice.images.data(), accumulate || row > 0, row > 0, false,
                       row + slice.rows == batch.rows ? hooks : none);
    }
    return total;
  }

 private:
  TensorTable tensors_;
  std::vector<Unit> units_;
  Perceptron layers_;
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
