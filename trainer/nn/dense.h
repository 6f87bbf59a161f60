// A fully connected layer, y = x·Wᵀ + b: one class with the CPU's packed products
// (nn/cpu/cpu_dense.h), one with the kernels that every device has. Both have the same tensors
// (NAME.bias and NAME.weight) and initial parameters, so that they read each other's checkpoints.
//
// The layouts of weights, activations and their gradients are private to a device. Letters: B rows,
// I inputs, O outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainer/device/device.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class Dense {
 public:
  virtual ~Dense() = default;

  std::size_t inputs() const { return inputs_; }
  std::size_t outputs() const { return outputs_; }
  std::size_t unit() const { return unit_; } ///< Unit of its tensors.

  /// Glorot uniform, as Keras' Dense: ±sqrt(6 / (inputs + outputs)), bias 0. Weight (i, o) depends
  /// on seed and layer only.
  void initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const;

  /// Floats of a row of so many activations, or of their gradients.
  virtual std::size_t row(std::size_t values) const { return values; }
  /// Allocates what backward_input() takes; backward_input() does so itself if it is missing.
  virtual void make_room() {}

  /// y = relu(x·Wᵀ + b), or without `relu` logits.
  virtual void forward(const UnitMemory& memory, std::size_t rows, const float* x, bool relu,
                       float* y) const = 0;
  /// Adds the softmax cross-entropy of the logits of x to `*to`, and leaves their gradient times
  /// `*scale` in `logits`; if `scale` is null, no gradient. Returns whether it also wrote to `dx`
  /// what backward_input() would.
  virtual bool score(const UnitMemory& memory, std::span<const std::int32_t> labels, const float* x,
                     const float* scale, bool accumulate, float* logits, float* dx,
                     Score* to) const = 0;

  // Gradients, added to the old ones with `accumulate`. The bias's gradient is computed together
  // with dy, by score() or by the backward_input() of the next layer, or else with the weight's.

  /// Notifies `owner`, unless it is null, of final gradients.
  virtual void backward_weight(const UnitMemory& memory, std::size_t rows, const float* x,
                               const float* dy, bool accumulate, ParameterOwner* owner) const = 0;
  /// dx = dy·W. `dbias`: gradient of the bias of the layer below, whose relu made x: dx is 0 where
  /// x ≤ 0. Null: there is no such layer, and whoever made x masks dx itself. `is_same`: the
  /// parameters have not changed since the last call.
  virtual void backward_input(const UnitMemory& memory, std::size_t rows, const float* dy,
                              const float* x, bool is_same, bool accumulate, float* dbias,
                              float* dx) = 0;

  /// Whether backward_weight() of so many rows is small, so that weight_product() may be queued
  /// together with those of other layers instead.
  virtual bool is_small(std::size_t /*rows*/) const { return false; }
  Matmul weight_product(const UnitMemory& memory, std::size_t rows, const float* x, const float* dy,
                        bool accumulate) const {
    return DenseShape{rows, inputs_, outputs_}.backward_weight(
        x, dy, accumulate, weight_gradient(memory), bias_gradient(memory));
  }

  ArenaRange weight_range() const { return weight_.range(); } ///< Range in the arenas.
  float* bias_gradient(const UnitMemory& memory) const { return memory.gradients + bias_; }

 protected:
  /// Adds its tensors to `tensors` as a unit.
  Dense(const std::string& name, std::size_t inputs, std::size_t outputs, Layout layout,
        TensorTable& tensors);

  const float* bias(const UnitMemory& memory) const { return memory.weights + bias_; }
  const float* weight(const UnitMemory& memory) const { return memory.weights + weight_.in_unit; }
  float* weight_gradient(const UnitMemory& memory) const {
    return memory.gradients + weight_.in_unit;
  }

 private:
  std::size_t inputs_;
  std::size_t outputs_;
  std::size_t unit_;
  std::size_t bias_; ///< Offset of the bias in the unit.
  Tensor weight_;
};

/// `is_first`: x is a batch with contiguous rows; otherwise it comes from the layer below.
std::unique_ptr<Dense> make_dense(Device& device, const std::string& name, std::size_t inputs,
                                  std::size_t outputs, bool is_first, TensorTable& tensors);

} // namespace trainer
