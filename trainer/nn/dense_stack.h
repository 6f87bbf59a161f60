// Fully connected layers with ReLU between them and softmax cross-entropy behind them: the whole of
// the MLP, and what ends other models, on any device.
//
// Cost of a step, of B rows, I inputs of a layer and O outputs: 6·B·I·O FLOP a layer, less the
// 2·B·I·O of the inputs' gradient where it is not needed.
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
  /// Adds its tensors, a unit a layer, the last layer's first: backward finishes them in this
  /// order. `wants_input`: the gradient of x, too. Throws UsageError where a
  /// hidden layer is empty.
  DenseStack(Device& device, std::size_t inputs, const ModelOptions& options, bool wants_input,
             TensorTable& tensors);

  std::string describe() const; ///< "784-128-10"
  double flops() const;         ///< Of a sample, forward and backward.

  /// `first`: the model's layers before its own.
  void initialize(std::uint64_t seed, std::uint32_t first, std::span<float> arena) const;
  /// The memory of the model's units, from here to the next call.
  void use(std::span<const UnitMemory> memory) { memory_ = memory; }
  /// For as many rows as have come so far; forward() and backward() make it where it is missing.
  void make_room(std::size_t rows);
  /// Backward of so many rows writes the gradients of all layers at once, at its end.
  bool are_together(std::size_t rows) const;
  /// Says that it is about to write those of all layers.
  void write(ParameterOwner& owner) const;

  /// Of x (B, I), up to what the last layer reads.
  void forward(std::size_t rows, const float* x);
  /// Of the logits of what forward() has made, added to `*to`, with the gradient of `*scale`, in
  /// the device's memory, times the loss for backward(); null: no gradient.
  void score(std::span<const std::int32_t> labels, const float* scale, bool accumulate, Score* to);
  /// Gradients of the parameters, added to what is there with `accumulate`, and that of x, as the
  /// device has it (nn/dense.h), where it is wanted; else null. `is_same`: the parameters are those
  /// of the call before. `owner`, where given, is notified of what is final and done.
  const float* backward(std::size_t rows, const float* x, bool accumulate, bool is_same,
                        ParameterOwner* owner);

 private:
  const UnitMemory& memory(const Dense& layer) const { return memory_[layer.unit()]; }
  void make_outputs(std::size_t rows); ///< What forward() alone takes.

  Device& device_;
  bool wants_input_;
  std::vector<std::unique_ptr<Dense>> layers_; ///< From the input on.
  std::span<const UnitMemory> memory_;
  std::vector<Buffer> outputs_;  ///< Of each layer; the last one's: logits, then their gradient.
  std::vector<Buffer> changes_;  ///< Gradients of each layer's inputs.
  std::vector<Matmul> products_; ///< Of weights' gradients, that are put there together.
  const float* last_input_ = nullptr; ///< What the last layer reads,
  bool has_last_change_ = false;      ///< and whether score() has made the gradient of that.
};

} // namespace trainer
