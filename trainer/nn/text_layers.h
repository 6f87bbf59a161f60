// The parts of a transformer, with the kernels that every device has. All arrays are row-major,
// also in the arenas.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/batch.h"
#include "trainer/nn/dropout.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

/// What all parts of a model share: one per model, which outlives them.
struct LayerContext {
  explicit LayerContext(Device& device_)
      : device(device_), stream(device_.stream()), text(*device_.kernels().text) {}

  void multiply(const Matmul& matmul) const { device.kernels().matmul(stream, matmul); }
  /// Allocates memory for so many activations, or their gradients.
  Buffer activations(std::size_t count) const {
    return device.allocate(count, device.activation_type());
  }

  Device& device;
  Stream& stream;
  const TextKernels& text;
};

/// What a branch of a layer is added to, once some of it is dropped; null: nothing.
struct Residual {
  Dropped dropped = {};
  ConstTypedPointer of = {};
};

/// y = x · weightᵀ + bias: tensors NAME.bias [O] and NAME.weight [O, I], or [I, O] and transposed,
/// in the last unit.
class Linear {
 public:
  using Epilogue = Matmul::Epilogue;

  Linear(const LayerContext& context, const std::string& name, std::size_t inputs,
         std::size_t outputs, TensorTable& tensors, Layout layout = Layout::row_major)
      : context_(&context), inputs_(inputs), outputs_(outputs),
        bias_(tensors[tensors.add(name + ".bias", {outputs})].in_unit),
        weight_(tensors[tensors.add(name + ".weight",
                                    layout == Layout::turned
                                        ? std::vector<std::size_t>{inputs, outputs}
                                        : std::vector<std::size_t>{outputs, inputs},
                                    layout)]
                    .in_unit) {}

  std::size_t last() const { return weight_ + inputs_ * outputs_; } ///< Its end in the unit.

  /// `y_row`, and `dy_row` below: row strides; 0: O.
  void forward(const UnitMemory& memory, std::size_t rows, ConstTypedPointer x, TypedPointer y,
               std::size_t y_row = 0) const {
    Matmul product = shape(rows).forward(x, memory.factor(weight_), memory.factor(bias_), y);
    product.c_row = y_row;
    context_->multiply(product);
  }
  /// The same with dropout, added to `residual` (N, O).
  void forward_onto(const UnitMemory& memory, std::size_t rows, ConstTypedPointer x,
                    const Residual& residual, TypedPointer y) const {
    if (const Residual left = forward_before(memory, rows, x, residual, y); left.of) {
      context_->text.drop_and_add(context_->stream, {rows, outputs_}, left.dropped, left.of, y);
    }
  }
  /// The same, for a norm that takes what is returned: what is still to be done to y.
  Residual forward_before(const UnitMemory& memory, std::size_t rows, ConstTypedPointer x,
                          const Residual& residual, TypedPointer y) const {
    Matmul product = shape(rows).forward(x, memory.factor(weight_), memory.factor(bias_), y);
    const bool adds = residual.dropped.keep == nullptr && !context_->device.is_host();
    product.plus = adds ? residual.of : ConstTypedPointer();
    context_->multiply(product);
    return adds ? Residual() : residual;
  }
  /// y = gelu(u), and u; `gelu`: exact or by tanh.
  void forward_gelu(const UnitMemory& memory, std::size_t rows, ConstTypedPointer x, TypedPointer u,
                    TypedPointer y, Epilogue gelu = Epilogue::gelu_bias) const {
    context_->multiply(
        shape(rows).forward(x, memory.factor(weight_), memory.factor(bias_), y, gelu, u));
  }
  void backward_weight(const UnitMemory& memory, std::size_t rows, ConstTypedPointer x,
                       ConstTypedPointer dy, bool accumulate, std::size_t dy_row = 0) const {
    Matmul product = shape(rows).backward_weight(x, dy, accumulate, memory.gradients + weight_,
                                                 memory.gradients + bias_);
    product.a_row = dy_row;
    context_->multiply(product);
  }
  void backward_input(const UnitMemory& memory, std::size_t rows, ConstTypedPointer dy,
                      bool accumulate, TypedPointer dx, std::size_t dy_row = 0) const {
    Matmul product = shape(rows).backward_input(dy, memory.factor(weight_), accumulate, dx);
    product.a_row = dy_row;
    context_->multiply(product);
  }
  /// The gradient of u, where x = gelu(u).
  void backward_gelu(const UnitMemory& memory, std::size_t rows, ConstTypedPointer dy,
                     ConstTypedPointer u, TypedPointer du, Epilogue gelu = Epilogue::dgelu) const {
    context_->multiply(shape(rows).backward_input(dy, memory.factor(weight_), gelu, u, du));
  }

 private:
  DenseShape shape(std::size_t rows) const { return {rows, inputs_, outputs_}; }

  const LayerContext* context_;
  std::size_t inputs_;
  std::size_t outputs_;
  std::size_t bias_; ///< Offset of the bias in the unit.
  std::size_t weight_;
};

/// LayerNorm: tensors NAME.weight and NAME.bias, as wide as rows, in the last unit.
class LayerNorm {
 public:
  LayerNorm(const LayerContext& context, const std::string& name, std::size_t width, float epsilon,
            TensorTable& tensors)
      : context_(&context), width_(width), epsilon_(epsilon), first_(tensors.arena_size()),
        gain_(tensors[tensors.add(name + ".weight", {width})].in_unit),
        shift_(tensors[tensors.add(name + ".bias", {width})].in_unit) {}

  std::size_t last() const { return shift_ + width_; } ///< Its end in the unit.
  void initialize(std::span<float> arena) const {
    std::fill_n(arena.data() + first_, width_, 1.0F);
  }

  /// `moments` (rows, 2) is for backward.
  void forward(const UnitMemory& memory, std::size_t rows, ConstTypedPointer x, TypedPointer y,
               float* moments) const {
    context_->text.norm(context_->stream, {rows, width_, epsilon_}, x, memory.weights + gain_,
                        memory.weights + shift_, y, moments);
  }
  /// The same of x after what is still to be done to it, Linear::forward_before()'s.
  void forward(const UnitMemory& memory, std::size_t rows, const Residual& left, TypedPointer x,
               TypedPointer y, float* moments) const {
    if (!left.of) {
      forward(memory, rows, x, y, moments);
      return;
    }
    context_->text.add_and_norm(context_->stream, {rows, width_, epsilon_}, left.dropped, left.of,
                                x, memory.weights + gain_, memory.weights + shift_, y, moments);
  }
  /// dy becomes dx; or, unless `onto` is null, dx is added to `onto`, and dy is undefined
  /// afterwards.
  void backward(const UnitMemory& memory, std::size_t rows, ConstTypedPointer x,
                const float* moments, bool accumulate, TypedPointer dy,
                TypedPointer onto = {}) const {
    context_->text.norm_backward(context_->stream, {rows, width_, epsilon_}, x, moments,
                                 memory.weights + gain_, accumulate, dy, onto,
                                 memory.gradients + gain_, memory.gradients + shift_);
  }

 private:
  const LayerContext* context_;
  std::size_t width_;
  float epsilon_;
  std::size_t first_; ///< Offset of the unit in the arenas.
  std::size_t gain_;  ///< Offsets in the unit.
  std::size_t shift_;
};

/// Dropout as in nn/dropout.h.
class Dropout {
 public:
  Dropout(const LayerContext& context, const DropoutRule& rule, std::uint32_t site)
      : context_(&context), rule_(rule), site_(site) {}

  /// Allocates the keep bits of `rows` rows of so many words, if it drops at all.
  void make_room(std::size_t rows, std::size_t words) {
    bits_ = context_->device.allocate(rule_.threshold() == 0 ? 0 : rows * words * sizeof *bits(),
                                      DType::u8);
  }
  /// Draws the keep bits of a batch's rows, `words` words each, for the passes that train on it.
  void draw(const Batch& batch, std::size_t words) {
    if (rule_.threshold() > 0) {
      context_->text.keep_bits(context_->stream, rule_.bits(site_, batch.position, words),
                               batch.rows * words, bits());
    }
  }
  /// What a pass drops: by the keep bits drawn last, or nothing.
  Dropped drawn(const TextPass& pass) const {
    return pass.is_training && rule_.threshold() > 0 ? Dropped{bits(), rule_.scale()} : Dropped{};
  }

 private:
  std::uint16_t* bits() const { return static_cast<std::uint16_t*>(bits_.memory()); }

  const LayerContext* context_;
  DropoutRule rule_;
  std::uint32_t site_;
  Buffer bits_{0};
};

} // namespace trainer
