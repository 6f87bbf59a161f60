#include "trainer/nn/cpu/linear.h"

#include <algorithm>

#include "trainer/device/cpu/matmul.h"

namespace trainer {
namespace {

constexpr std::size_t k_cut_result = 1 << 16; ///< Floats of a weight's gradient.

/// Of copies that fit the caches as they are it makes no cuts.
void multiply_in_cuts(const CpuKernels& kernels, const Gemm& gemm) {
  if (kernels.product == kernels.gemm) {
    gemm_in_cuts(kernels.gemm, gemm);
  } else {
    kernels.product(gemm);
  }
}

} // namespace

Linear::Linear(const std::string& name, std::size_t inputs, std::size_t outputs,
               TensorTable& tensors, const CpuKernels& kernels)
    : inputs_(inputs), outputs_(outputs),
      bias_(tensors[tensors.add(name + ".bias", {outputs})].in_unit),
      weight_(tensors[tensors.add(name + ".weight", {outputs, inputs}, Layout::panels)].in_unit),
      kernels_(&kernels) {}

void Linear::forward(const UnitMemory& memory, std::size_t rows, const float* x,
                     std::size_t x_stride, float* y, std::size_t y_stride) const {
  multiply_in_cuts(*kernels_, {.m = rows,
                               .k = inputs_,
                               .panels = outputs_ / k_panel,
                               .a = x,
                               .a_row = x_stride,
                               .b = memory.weights + weight_,
                               .c = y,
                               .c_row = y_stride,
                               .c_panel = k_panel});
}

void Linear::backward_input(const UnitMemory& memory, std::size_t rows, const float* dy,
                            std::size_t dy_stride, float* dx, std::size_t dx_stride,
                            bool accumulate, float* room) const {
  kernels_->transformer.transpose_panels(outputs_, inputs_, memory.weights + weight_, room);
  multiply_in_cuts(*kernels_, {.m = rows,
                               .k = outputs_,
                               .panels = inputs_ / k_panel,
                               .a = dy,
                               .a_row = dy_stride,
                               .b = room, // W in panels of its inputs
                               .c = dx,
                               .c_row = dx_stride,
                               .c_panel = k_panel,
                               .accumulate = accumulate});
}

void Linear::backward_weight(const UnitMemory& memory, std::size_t rows, const float* x,
                             std::size_t x_stride, const float* dy, std::size_t dy_stride,
                             bool accumulate) const {
  const std::size_t panels = outputs_ / k_panel;
  const std::size_t step = std::max<std::size_t>(k_cut_result / (inputs_ * k_panel), 2);
  for (std::size_t panel = 0; panel < panels; panel += step) {
    kernels_->product({.m = inputs_,
                       .k = rows,
                       .panels = std::min(step, panels - panel),
                       .a = x,
                       .a_row = 1,
                       .a_column = x_stride,
                       .b = dy + panel * k_panel,
                       .c = memory.gradients + weight_ + panel * inputs_ * k_panel,
                       .c_row = k_panel,
                       .c_panel = inputs_ * k_panel,
                       .accumulate = accumulate,
                       .b_row = dy_stride,
                       .b_panel = k_panel});
  }
}

} // namespace trainer
