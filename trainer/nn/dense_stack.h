// Fully connected layers with ReLU between them and softmax cross-entropy at the end: the whole
// MLP, and the end of other models, on any device.
//
// Cost of a step with B rows, I inputs of a layer and O outputs: 6·B·I·O FLOP per layer, less the
// 2·B·I·O of the input's gradient if it is not needed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/models/model.h"
#include "trainer/nn/dense.h"

namespace trainer {

class DenseStack {
 public:
  /// Adds its tensors, one unit per layer, from the last layer to the first: backward finishes them
  /// in this order. `wants_input`: whether the gradient of x is needed. Throws UsageError if a
  /// hidden layer is empty.
  DenseStack(Device& device, std::size_t inputs, const ModelOptions& options, bool wants_input,
             TensorTable& tensors);

  std::string describe() const; ///< "784-128-10"
  double flops() const;         ///< For one sample, forward and backward.

  /// `first`: the number of layers of the model before these.
  void initialize(std::uint64_t seed, std::uint32_t first, std::span<float> arena) const;
  /// Sets the memory of the model's units, until the next call.
  void use(std::span<const UnitMemory> memory) { memory_ = memory; }
  /// Allocates activations for so many rows; forward() and backward() do so if they are missing.
  void make_room(std::size_t rows);
  /// Backward of so many rows writes the gradients of all layers at once, at its end.
  bool are_together(std::size_t rows) const;
  /// Says that it is about to write those of all layers.
  void write(ParameterOwner& owner) const;

  /// Computes from x (B, I) the input of the last layer.
  void forward(std::size_t rows, const float* x);
  /// Adds the score after forward() to `*to`, and computes for backward() the gradient of the loss
  /// times `*scale`, which is in device memory; null: no gradient.
  void score(std::span<const std::int32_t> labels, const float* scale, bool accumulate, Score* to);
  /// Computes gradients of the parameters, added to the old ones with `accumulate`. Returns that of
  /// x, in the device's layout (nn/dense.h), or null if it is not wanted. `is_same`: the parameters
  /// have not changed since the last call. Notifies `owner`, unless it is null, of what is final
  /// and done.
  const float* backward(std::size_t rows, const float* x, bool accumulate, bool is_same,
                        ParameterOwner* owner);

 private:
  const UnitMemory& memory(const Dense& layer) const { return memory_[layer.unit()]; }
  void make_outputs(std::size_t rows); ///< Allocates what forward() alone takes.

  Device& device_;
  bool wants_input_;
  std::vector<std::unique_ptr<Dense>> layers_; ///< From the input on.
  std::span<const UnitMemory> memory_;
  std::vector<Buffer> outputs_; ///< Output of each layer; of the last: logits, then their gradient.
  std::vector<Buffer> changes_; ///< Gradients of each layer's inputs.
  std::vector<Matmul> products_;      ///< Gradients of weights, queued together.
  const float* last_input_ = nullptr; ///< Input of the last layer,
  bool has_last_change_ = false;      ///< and whether score() has made the gradient of that.
};

} // namespace trainer
