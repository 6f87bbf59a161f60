#include "trainer/models/sliced.h"

#include <algorithm>

namespace trainer {

SlicedModel::SlicedModel(std::size_t slice_rows, std::size_t inputs, const ModelOptions& options,
                         const CpuKernels& kernels)
    : slice_rows_(slice_rows),
      dense_(inputs, options.hidden, options.classes, slice_rows, kernels, tensors_) {}

void SlicedModel::need_all(ParameterOwner& owner) {
  memory_ = Model::need_all(owner);
  dense_.use(memory_);
}

void SlicedModel::evaluate(const Batch& batch, ParameterOwner& owner, Score* to) {
  need_all(owner);
  for (std::size_t row = 0; row < batch.rows; row += slice_rows_) {
    const Batch slice = batch.slice(row, slice_rows_);
    forward(slice, row > 0);
    *to += dense_.score(slice.labels);
  }
}

void SlicedModel::forward_backward(const Batch& batch, const float* scale, bool accumulate,
                                   ParameterOwner& owner, Score* to) {
  need_all(owner);
  if (!accumulate) {
    clear_bias_gradients();
  }
  for (std::size_t row = 0; row < batch.rows; row += slice_rows_) {
    const Batch slice = batch.slice(row, slice_rows_);
    forward(slice, row > 0);
    *to += dense_.score_for_backward(slice.labels, *scale);
    backward(slice, accumulate || row > 0, row > 0,
             row + slice.rows == batch.rows ? &owner : nullptr);
  }
}

void SlicedModel::make_room(const Batch& like) {
  dense_.make_room(std::min(like.rows, slice_rows_), has_layers_below());
}

void SlicedModel::rehearse(std::size_t rows, ParameterOwner& owner,
                           const std::function<void(std::size_t unit)>& ahead) const {
  for (std::size_t unit = 0; rows > slice_rows_ && unit < units().size(); ++unit) {
    ahead(unit);
  }
  Model::rehearse(rows, owner, ahead);
}

} // namespace trainer
