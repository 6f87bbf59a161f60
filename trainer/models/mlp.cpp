// The multilayer perceptron: inputs → hidden layers (ReLU) → classes, with softmax cross-entropy.
//
// The arenas hold the layers from the last to the first, each as [bias | weight]: backward finishes
// them in this order, on a CPU the weight panel by panel.
#include "trainer/models/models.h"
#include "trainer/models/sliced.h"

namespace trainer {
namespace {

class Mlp final : public SlicedModel {
 public:
  Mlp(const ModelOptions& options, Device& device)
      : SlicedModel(device, options.height * options.width, options, false) {}

  std::string describe() const override { return "mlp " + dense_.describe(); }
  double flops() const override { return dense_.flops(); }
  void initialize(std::uint64_t seed, std::span<float> arena) const override {
    dense_.initialize(seed, 0, arena);
  }

 private:
  void forward(const Batch& slice, bool /*is_same*/) override {
    dense_.forward(slice.rows, slice[field::images].data());
  }
  void backward(const Batch& slice, bool accumulate, bool is_same, ParameterOwner* owner) override {
    dense_.backward(slice.rows, slice[field::images].data(), accumulate, is_same, owner);
  }
};

} // namespace

std::unique_ptr<Model> make_mlp(const ModelOptions& options, Device& device) {
  return std::make_unique<Mlp>(options, device);
}

} // namespace trainer
