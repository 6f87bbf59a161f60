// The multilayer perceptron: inputs → hidden layers (ReLU) → classes, with softmax cross-entropy.
//
// The arenas hold a layer after the other, the last one first, each as [bias | weight]: backward
// finishes them in this order, the weight panel by panel.
#include "trainer/models/models.h"
#include "trainer/models/sliced.h"

namespace trainer {
namespace {

constexpr std::size_t k_mlp_slice = 64; ///< Rows.

class Mlp final : public SlicedModel {
 public:
  Mlp(const ModelOptions& options, const CpuKernels& kernels)
      : SlicedModel(k_mlp_slice, options.height * options.width, options, kernels) {}

  std::string describe() const override { return "mlp " + dense_.describe(); }
  void initialize(std::uint64_t seed, std::span<float> arena) const override {
    dense_.initialize(seed, 0, arena);
  }

 private:
  void forward(const Batch& slice, bool /*is_same*/) override {
    dense_.forward(slice.rows, slice.images.data());
  }
  void backward(const Batch& slice, bool accumulate, bool is_same, ParameterOwner* owner) override {
    dense_.backward(slice.rows, slice.images.data(), accumulate, is_same, false, owner);
  }
};

} // namespace

std::unique_ptr<Model> make_mlp(const ModelOptions& options, Device& device) {
  return device.cpu_kernels() == nullptr ? make_layered_mlp(options, device)
                                         : std::make_unique<Mlp>(options, *device.cpu_kernels());
}

} // namespace trainer
