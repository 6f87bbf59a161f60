// A fully connected layer, y = x·Wᵀ + b, as its device computes it: one class over the CPU's packed
// products (nn/cpu/cpu_dense.h), one over the kernels that every device has. Both have the same
// tensors, NAME.bias and NAME.weight, names and first parameters, so that one's checkpoint is the
// other's.
//
// A device arranges weights, activations and their gradients as its products read them; what is
// made here is for no one else. Letters: B rows, I inputs, O outputs.
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
  std::size_t unit() const { return unit_; } ///< Whose memory is what is read and written.

  /// Glorot uniform, as Keras' Dense: ±sqrt(6 / (inputs + outputs)), bias 0. Number (i, o) depends
  /// on seed and layer only.
  void initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const;

  /// Floats that a row of so many activations takes, or of their gradients.
  virtual std::size_t row(std::size_t values) const { return values; }
  /// That backward_input() takes, which makes it itself where it is missing.
  virtual void make_room() {}

  /// With `relu` what is below 0 to 0; without, logits.
  virtual void forward(const UnitMemory& memory, std::size_t rows, const float* x, bool relu,
                       float* y) const = 0;
  /// Softmax and cross-entropy of x's logits, added to `*to`; `logits` has their gradient then,
  /// times
  /// `*scale`, null: 0, and nothing of it is kept. True: `dx` is what backward_input() would make.
  virtual bool score(const UnitMemory& memory, std::span<const std::int32_t> labels, const float* x,
                     const float* scale, bool accumulate, float* logits, float* dx,
                     Score* to) const = 0;

  // Gradients, added to what is there with `accumulate`. That of the bias is made where dy is, by
  // score() or the backward_input() of the layer behind, or else with the weight's.

  /// `owner`, where given, is notified of what is final.
  virtual void backward_weight(const UnitMemory& memory, std::size_t rows, const float* x,
                               const float* dy, bool accumulate, ParameterOwner* owner) const = 0;
  /// dx = dy·W. `dbias`: of the layer below, whose relu made x: dx is 0 where x is not above 0.
  /// Null: there is none, and what made x leaves out by itself what is 0 there. `is_same`: the
  /// parameters are those of the last call.
  virtual void backward_input(const UnitMemory& memory, std::size_t rows, const float* dy,
                              const float* x, bool is_same, bool accumulate, float* dbias,
                              float* dx) = 0;

  /// What backward_weight() puts on the stream, for several layers' at once; `is_small`: that may
  /// be.
  virtual bool is_small(std::size_t /*rows*/) const { return false; }
  Matmul weight_product(const UnitMemory& memory, std::size_t rows, const float* x, const float* dy,
                        bool accumulate) const {
    return DenseShape{rows, inputs_, outputs_}.backward_weight(
        x, dy, accumulate, weight_gradient(memory), bias_gradient(memory));
  }

  ArenaRange weight_range() const { return weight_.range(); } ///< In the arenas.
  float* bias_gradient(const UnitMemory& memory) const { return memory.gradients + bias_; }

 protected:
  /// Adds its tensors to `tensors`, a unit.
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
  std::size_t bias_; ///< Where it lies in the unit.
  Tensor weight_;
};

/// `is_first`: x is a batch, its rows on end; else the layer below made it.
std::unique_ptr<Dense> make_dense(Device& device, const std::string& name, std::size_t inputs,
                                  std::size_t outputs, bool is_first, TensorTable& tensors);

} // namespace trainer
