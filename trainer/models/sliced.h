// A model that ends in fully connected layers and, on a CPU, processes a batch in slices of a few
// rows, forward and backward, accumulating gradients: the activations and images of a slice stay in
// a core's caches. So all layers are needed from the first slice to the last, and gradients become
// final in the last one. On other devices a batch is one slice.
#pragma once

#include "trainer/models/model.h"
#include "trainer/nn/dense_stack.h"

namespace trainer {

inline constexpr std::size_t k_slice_rows = 64; ///< Rows of a slice on a CPU.

class SlicedModel : public Model {
 public:
  const TensorTable& tensors() const final { return tensors_; }
  void evaluate(const Batch& batch, ParameterOwner& owner, Score* to) final;
  void compute(const Batch& batch, const float* scale, bool accumulate, ParameterOwner& owner,
               Score* to) final;
  void make_room(const Batch& like) final;
  void rehearse(std::size_t rows, ParameterOwner& owner,
                const std::function<void(std::size_t unit)>& ahead) const final;

 protected:
  /// `inputs`: of the fully connected layers, which come first in the arenas. `has_layers_below`:
  /// backward() needs the gradient of their input.
  SlicedModel(Device& device, std::size_t inputs, const ModelOptions& options,
              bool has_layers_below);

  /// Computes the logits. `is_same`: the parameters have not changed since the previous slice.
  virtual void forward(const Batch& slice, bool is_same) = 0;
  /// `owner`: in the last slice, notified of what is final and done; otherwise null.
  virtual void backward(const Batch& slice, bool accumulate, bool is_same,
                        ParameterOwner* owner) = 0;
  /// Allocates activations of the layers below, for so many rows.
  virtual void make_room_below(std::size_t /*rows*/) {}
  /// Clears the gradients to which backward() only adds.
  virtual void clear_bias_gradients() {}

  Device& device_;
  const std::size_t slice_rows_;
  TensorTable tensors_;
  std::vector<UnitMemory> memory_; ///< Memory of the units during a pass.
  DenseStack dense_;

 private:
  void need_all(ParameterOwner& owner);
  void write_first(ParameterOwner& owner) const;
};

} // namespace trainer
