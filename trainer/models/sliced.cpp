#include "trainer/models/sliced.h"

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {

SlicedModel::SlicedModel(std::size_t slice_rows, std::size_t inputs, const ModelOptions& options,
                         const CpuKernels& kernels)
    : slice_rows_(slice_rows),
      dense_(inputs, options.hidden, options.classes, slice_rows, kernels, tensors_, units_) {}

void SlicedModel::evaluate(const Batch& batch, Score* to) {
  for (std::size_t row = 0; row < batch.rows; row += slice_rows_) {
    const Batch slice = batch.slice(row, slice_rows_);
    forward(slice, row > 0);
    *to += dense_.score(slice.labels);
  }
}

void SlicedModel::forward_backward(const Batch& batch, float scale, bool accumulate,
                                   const Hooks& hooks, Score* to) {
  for (std::size_t unit = units_.size(); hooks.need && unit-- > 0;) {
    hooks.need(unit);
  }
  if (!accumulate) {
    clear_bias_gradients();
  }
  const Hooks none;
  for (std::size_t row = 0; row < batch.rows; row += slice_rows_) {
    const Batch slice = batch.slice(row, slice_rows_);
    forward(slice, row > 0);
    *to += dense_.score_for_backward(slice.labels, scale);
    backward(slice, accumulate || row > 0, row > 0, row + slice.rows == batch.rows ? hooks : none);
  }
}

const CpuKernels& cpu_kernels_for(const ModelOptions& options, const Device& device) {
  const CpuKernels* kernels = device.cpu_kernels();
  if (kernels == nullptr) {
    throw UsageError(fmt::format("--model={}: computes on CPUs; use --device=cpu", options.name));
  }
  return *kernels;
}

} // namespace trainer
