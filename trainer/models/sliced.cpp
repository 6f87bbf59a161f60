#include "trainer/models/sliced.h"

#include <algorithm>

namespace trainer {

SlicedModel::SlicedModel(Device& device, std::size_t inputs, const ModelOptions& options,
                         bool has_layers_below)
    : device_(device), slice_rows_(device.cpu_kernels() == nullptr ? SIZE_MAX : k_slice_rows),
      dense_(device, inputs, options, has_layers_below, tensors_) {}

void SlicedModel::need_all(ParameterOwner& owner) {
  memory_ = Model::need_all(owner);
  dense_.use(memory_);
}

/// Slices write all gradients from the first one on.
void SlicedModel::write_first(ParameterOwner& owner) const {
  const std::size_t count = slice_rows_ == SIZE_MAX ? 1 : units().size();
  for (std::size_t unit = 0; unit < count; ++unit) {
    owner.write(unit);
  }
}

void SlicedModel::evaluate(const Batch& batch, ParameterOwner& owner, Score* to) {
  need_all(owner);
  for (std::size_t row = 0; row < batch.rows; row += slice_rows_) {
    const Batch slice = batch.slice(row, slice_rows_);
    forward(slice, row > 0);
    dense_.score(slice[field::labels], nullptr, false, to);
  }
}

void SlicedModel::compute(const Batch& batch, const float* scale, bool accumulate,
                          ParameterOwner& owner, Score* to) {
  need_all(owner);
  write_first(owner);
  if (!accumulate) {
    clear_bias_gradients();
  }
  for (std::size_t row = 0; row < batch.rows; row += slice_rows_) {
    const Batch slice = batch.slice(row, slice_rows_);
    forward(slice, row > 0);
    const bool adds = accumulate || row > 0;
    dense_.score(slice[field::labels], scale, adds, to);
    backward(slice, adds, row > 0, row + slice.rows == batch.rows ? &owner : nullptr);
  }
}

void SlicedModel::make_room(const Batch& like) {
  make_room_below(std::min(like.rows, slice_rows_));
  dense_.make_room(std::min(like.rows, slice_rows_));
}

void SlicedModel::rehearse(std::size_t rows, ParameterOwner& owner,
                           const std::function<void(std::size_t unit)>& ahead) const {
  Model::need_all(owner);
  write_first(owner);
  if (dense_.are_together(std::min(rows, slice_rows_))) {
    dense_.write(owner);
  }
  for (std::size_t unit = 0; rows > slice_rows_ && unit < units().size(); ++unit) {
    ahead(unit);
  }
  for (std::size_t unit = 0; unit < units().size(); ++unit) {
    const auto& [first, last] = units()[unit];
    for (std::size_t count = first; last - count > owner.granularity();) {
      owner.final(count += owner.granularity());
    }
    finish(owner, unit);
  }
}

} // namespace trainer
