// Normalisation of each row to mean 0 and variance 1, then times a gain and plus a shift: tensors
// NAME.weight and NAME.bias, of the rows' width.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "trainer/nn/cpu/matrix.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class LayerNorm {
 public:
  /// Adds its tensors to the unit of `tensors` that was begun last, whose memory is what is read
  /// and written.
  LayerNorm(const std::string& name, std::size_t width, float epsilon, TensorTable& tensors,
            const CpuKernels& kernels)
      : epsilon_(epsilon), first_(tensors.arena_size()),
        gain_(tensors[tensors.add(name + ".weight", {width})].in_unit),
        shift_(tensors[tensors.add(name + ".bias", {width})].in_unit), width_(width),
        kernels_(&kernels.transformer) {}

  void initialize(std::span<float> arena) const {
    std::fill_n(arena.data() + first_, width_, 1.0F);
  }

  /// y = norm(x), of the shape's rows, which are at most `most_rows` as make_room() was told.
  void forward(const UnitMemory& memory, const RowShape& shape, const float* x, float* y) const {
    kernels_->norm(shape, x, memory.weights + gain_, memory.weights + shift_, epsilon_, y,
                   moments_.data());
  }
  /// dy becomes dx; gradients are added with `accumulate`, else written over.
  void backward(const UnitMemory& memory, const RowShape& shape, const float* x, float* dy,
                bool accumulate) const {
    float* const dgain = memory.gradients + gain_;
    float* const dshift = memory.gradients + shift_;
    if (!accumulate) {
      std::fill_n(dgain, width_, 0.0F);
      std::fill_n(dshift, width_, 0.0F);
    }
    kernels_->norm_backward(shape, x, moments_.data(), memory.weights + gain_, dy, dgain, dshift);
  }
  void make_room(std::size_t most_rows) { moments_ = Buffer(2 * most_rows); }

 private:
  float epsilon_;
  std::size_t first_; ///< Of it in the arenas.
  std::size_t gain_;  ///< Where it lies in the unit.
  std::size_t shift_;
  std::size_t width_;
  const TransformerKernels* kernels_;
  Buffer moments_{0};
};

} // namespace trainer
