#include "trainer/nn/dense.h"

#include <cmath>

#include "trainer/nn/cpu/cpu_dense.h"
#include "trainer/random.h"

namespace trainer {
namespace {

/// With the kernels that every device has; all arrays are row-major.
class LayeredDense final : public Dense {
 public:
  LayeredDense(Device& device, const std::string& name, std::size_t inputs, std::size_t outputs,
               TensorTable& tensors)
      : Dense(name, inputs, outputs, Layout::row_major, tensors), stream_(device.stream()),
        kernels_(device.kernels()) {}

  void forward(const UnitMemory& memory, std::size_t rows, const float* x, bool relu,
               float* y) const override {
    kernels_.matmul(
        stream_, shape(rows).forward(x, weight(memory), bias(memory), y,
                                     relu ? Matmul::Epilogue::relu_bias : Matmul::Epilogue::bias));
  }
  bool score(const UnitMemory& memory, std::span<const std::int32_t> labels, const float* x,
             const float* scale, bool /*accumulate*/, float* logits, float* dx,
             Score* to) const override {
    if (outputs() <= k_most_scored) {
      kernels_.layers->score(stream_, shape(labels.size()), x, weight(memory), bias(memory),
                             labels.data(), scale, logits, dx, to);
      return true;
    }
    forward(memory, labels.size(), x, false, logits);
    kernels_.layers->softmax_cross_entropy(stream_, labels.size(), outputs(), logits, labels.data(),
                                           scale, logits, to);
    return false;
  }
  void backward_weight(const UnitMemory& memory, std::size_t rows, const float* x, const float* dy,
                       bool accumulate, ParameterOwner* owner) const override {
    kernels_.matmul(stream_, weight_product(memory, rows, x, dy, accumulate));
    if (owner != nullptr) {
      owner->final(weight_range().last);
    }
  }
  bool is_small(std::size_t rows) const override { return trainer::is_small(shape(rows)); }
  void backward_input(const UnitMemory& memory, std::size_t rows, const float* dy, const float* x,
                      bool /*is_same*/, bool /*accumulate*/, float* /*dbias*/, float* dx) override {
    kernels_.matmul(stream_,
                    shape(rows).backward_input(dy, weight(memory), Matmul::Epilogue::drelu, x, dx));
  }

 private:
  DenseShape shape(std::size_t rows) const { return {rows, inputs(), outputs()}; }

  Stream& stream_;
  const Kernels& kernels_;
};

} // namespace

Dense::Dense(const std::string& name, std::size_t inputs, std::size_t outputs, Layout layout,
             TensorTable& tensors)
    : inputs_(inputs), outputs_(outputs), unit_(tensors.begin_unit()),
      bias_(tensors[tensors.add(name + ".bias", {outputs})].in_unit),
      weight_(tensors[tensors.add(name + ".weight", {outputs, inputs}, layout)]) {}

void Dense::initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const {
  const float limit = std::sqrt(6.0F / static_cast<float>(inputs_ + outputs_));
  for (std::size_t i = 0; i < inputs_; ++i) {
    for (std::size_t o = 0; o < outputs_; ++o) {
      const auto bits = random_at(seed, RandomStream::weights, layer, i * outputs_ + o);
      arena[weight_.offset + weight_.place_of(o * inputs_ + i)] =
          limit * (2 * uniform(bits[0]) - 1);
    }
  }
}

std::unique_ptr<Dense> make_dense(Device& device, const std::string& name, std::size_t inputs,
                                  std::size_t outputs, bool is_first, TensorTable& tensors) {
  if (const CpuKernels* kernels = device.cpu_kernels(); kernels != nullptr) {
    return std::make_unique<CpuDense>(name, inputs, outputs, is_first, tensors, *kernels);
  }
  return std::make_unique<LayeredDense>(device, name, inputs, outputs, tensors);
}

} // namespace trainer
