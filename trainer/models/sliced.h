// A model of fully connected layers at its end that on a CPU works through a batch in slices of a
// few rows, forward and backward, adding up gradients: a slice's activations and its images stay in
// a core's caches from the first product to the last. So all layers are needed from the first slice
// to the last, and gradients are final in the last one. On any other device a batch is one slice.
#pragma once

#include "trainer/models/model.h"
#include "trainer/nn/dense_stack.h"

namespace trainer {

inline constexpr std::size_t k_slice_rows = 64; ///< On a CPU.

class SlicedModel : public Model {
 public:
  const TensorTable& tensors() const final { return tensors_; }
  void evaluate(const Batch& batch, ParameterOwner& owner, Score* to) final;
  void forward_backward(const Batch& batch, const float* scale, bool accumulate,
                        ParameterOwner& owner, Score* to) final;
  void make_room(const Batch& like) final;
  void rehearse(std::size_t rows, ParameterOwner& owner,
                const std::function<void(std::size_t unit)>& ahead) const final;

 protected:
  /// `inputs`: of the fully connected layers, which come first in the arenas. `has_layers_below`:
  /// backward() wants the gradient of what they read.
  SlicedModel(Device& device, std::size_t inputs, const ModelOptions& options,
              bool has_layers_below);

  /// Up to the logits. `is_same`: the parameters are those of the slice before.
  virtual void forward(const Batch& slice, bool is_same) = 0;
  /// `owner`: of the last slice, notified of what is final and done; else null.
  virtual void backward(const Batch& slice, bool accumulate, bool is_same,
                        ParameterOwner* owner) = 0;
  /// Of the layers below, for so many rows.
  virtual void make_room_below(std::size_t /*rows*/) {}
  /// To zero: those gradients that backward() only ever adds to.
  virtual void clear_bias_gradients() {}

  Device& device_;
  const std::size_t slice_rows_;
  TensorTable tensors_;
  std::vector<UnitMemory> memory_; ///< Of the units, while a pass lasts.
  DenseStack dense_;

 private:
  void need_all(ParameterOwner& owner);
  void write_first(ParameterOwner& owner) const;
};

} // namespace trainer
