// Fully connected layers with ReLU between them and softmax cross-entropy behind them: the whole of
// the MLP, and what ends other models.
//
// Letters: B rows, at most as many as it is made for; I inputs of a layer, O its outputs in whole
// panels. Cost of a step: 6·B·I·O FLOP a layer, less the 2·B·I·O that the inputs' gradient takes
// where nobody wants it.
#pragma once

#include <string>
#include <vector>

#include "trainer/models/model.h"
#include "trainer/nn/cpu/dense.h"

namespace trainer {

class Perceptron {
 public:
  /// Adds its tensors, a unit a layer, the last layer's first: backward finishes them in this
  /// order. Throws UsageError where there are too many classes, or a layer is empty.
  Perceptron(std::size_t inputs, const std::vector<std::size_t>& hidden, std::size_t classes,
             std::size_t most_rows, const CpuKernels& kernels, TensorTable& tensors);

  std::string describe() const; ///< "784-128-10"

  /// `first`: the model's layers before its own.
  void initialize(std::uint64_t seed, std::uint32_t first, std::span<float> arena) const;
  /// The memory of the model's units, from here to the next call.
  void use(std::span<const UnitMemory> memory) { memory_ = memory; }
  void clear_bias_gradients();
  /// That backward() of so many rows takes, which makes it itself where it is missing.
  void make_room(std::size_t rows, bool wants_input);

  /// Logits of x (B, I).
  void forward(std::size_t rows, const float* x);

  /// Of what forward() has made, with the gradient of `scale` times the loss for backward().
  Score score_for_backward(std::span<const std::uint8_t> labels, float scale);
  Score score(std::span<const std::uint8_t> labels);

  /// Gradients of the parameters, added to what is there with `accumulate`, and that of x in panels
  /// (I / 16, B, 16), I filled up, where `wants_input`; else null. `is_same`: the parameters are
  /// those of the call before. `owner`, where given, is told what is final and done with.
  const float* backward(std::size_t rows, const float* x, bool accumulate, bool is_same,
                        bool wants_input, ParameterOwner* owner);

 private:
  const UnitMemory& memory(const Dense& layer) const { return memory_[layer.unit()]; }

  const CpuKernels& kernels_;
  std::vector<Dense> layers_; ///< From the input on.
  std::span<const UnitMemory> memory_;
  std::vector<Buffer> activations_; ///< Of each layer; the last one's: logits, then their gradient.
  std::vector<Buffer> changes_;     ///< Gradients of each layer's inputs, in panels.
  Buffer unused_{0};                ///< Bias gradient of score().
};

} // namespace trainer
