// Fully connected layers, ReLU between them and softmax cross-entropy behind, over the kernels that
// every device has: what a GPU computes (the CPU's own are nn/cpu/perceptron.h, with the same
// tensors, names and first parameters, so that one's checkpoint is the other's). Weights are
// row-major, (outputs, inputs), as they are published.
//
// Letters: B rows, I inputs of a layer, O its outputs. Cost of a step: as Perceptron's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/models/model.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class DenseStack {
 public:
  /// Adds its tensors, a unit a layer, the last layer's first. Throws UsageError for more classes
  /// than a label has values.
  DenseStack(Device& device, std::size_t inputs, const ModelOptions& options, TensorTable& tensors);

  std::size_t inputs() const { return sizes_.front().inputs; }
  std::size_t first_width() const { return sizes_.front().outputs; }
  std::string describe() const; ///< "784-128-10"
  /// Of a sample, forward and backward, without the gradient of x.
  double flops() const;

  /// Glorot uniform, as Keras' Dense: ±sqrt(6 / (inputs + outputs)), bias 0, into the host's copy
  /// of the arena. `layer`: the first one's number.
  void initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const;

  /// The memory of the model's units, from here to the next call.
  void use(std::span<const UnitMemory> memory) { memory_ = memory; }

  /// From x (B, I) to each layer's outputs, `*to`, and the gradient of the last one's outputs,
  /// times `*scale`, which is in the device's memory; null: 0.
  void forward(std::size_t rows, const float* x, const std::uint8_t* labels, const float* scale,
               Score* to);
  /// Of the forward() before. `dx` (B, I): of x, where it is above 0; null: nobody wants it.
  void backward(std::size_t rows, const float* x, bool accumulate, ParameterOwner& owner,
                float* dx);

 private:
  struct Size {
    std::size_t inputs;
    std::size_t outputs;
    std::size_t unit;
    std::size_t bias; ///< Where it lies in the unit.
    std::size_t weight;
    std::size_t first; ///< Of it in the arenas.
    std::size_t last;
  };
  void make_room(std::size_t rows);

  Device& device_;
  std::vector<Size> sizes_; ///< From the input on.
  std::span<const UnitMemory> memory_;
  std::size_t rows_ = 0;
  std::vector<Buffer> outputs_; ///< Of each layer; the last one's: logits.
  std::vector<Buffer> changes_; ///< Their gradients.
};

} // namespace trainer
