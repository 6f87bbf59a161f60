#include "trainer/nn/cpu/cpu_dense.h"

#include <algorithm>

namespace trainer {

void CpuDense::make_room() {
  if (transposed_.size() == 0) {
    transposed_ = Buffer(outputs() * padded(inputs()));
  }
}

void CpuDense::forward(const UnitMemory& memory, std::size_t rows, const float* x, bool relu,
                       float* y) const {
  kernels_.product({.m = rows,
                    .k = inputs(),
                    .panels = panels(),
                    .a = x,
                    .a_row = x_row_,
                    .b = weight(memory),
                    .c = y,
                    .c_row = relu ? width() : k_panel,
                    .c_panel = relu ? k_panel : rows * k_panel,
                    .accumulate = false});
  if (relu) {
    kernels_.bias_relu(rows, width(), bias(memory), y);
  }
}

bool CpuDense::score(const UnitMemory& memory, std::span<const std::int32_t> labels, const float* x,
                     const float* scale, bool accumulate, float* logits, float* /*dx*/,
                     Score* to) const {
  forward(memory, labels.size(), x, false, logits);
  float* const dbias = scale == nullptr ? nullptr : bias_gradient(memory);
  if (dbias != nullptr && !accumulate) {
    std::fill_n(dbias, width(), 0.0F);
  }
  *to += kernels_.softmax_cross_entropy(labels.size(), outputs(), labels.data(), bias(memory),
                                        scale == nullptr ? 0 : *scale, logits, dbias);
  return false;
}

void CpuDense::backward_weight(const UnitMemory& memory, std::size_t rows, const float* x,
                               const float* dy, bool accumulate, ParameterOwner* owner) const {
  const std::size_t granularity = owner == nullptr ? SIZE_MAX : owner->granularity();
  const std::size_t panel_size = inputs() * k_panel;
  const std::size_t step = std::clamp((granularity - 1) / panel_size + 1, std::size_t{1}, panels());
  for (std::size_t panel = 0; panel < panels(); panel += step) {
    const std::size_t count = std::min(step, panels() - panel);
    kernels_.product({.m = inputs(),
                      .k = rows,
                      .panels = count,
                      .a = x,
                      .a_row = 1,
                      .a_column = x_row_,
                      .b = dy + panel * rows * k_panel,
                      .c = weight_gradient(memory) + panel * panel_size,
                      .c_row = k_panel,
                      .c_panel = panel_size,
                      .accumulate = accumulate});
    if (owner != nullptr) {
      owner->final(weight_range().first + (panel + count) * panel_size);
    }
  }
}

// A panel of dy holds 16 outputs, with rows 16 apart: dx is the sum of one product per panel.
void CpuDense::backward_input(const UnitMemory& memory, std::size_t rows, const float* dy,
                              const float* x, bool is_same, bool accumulate, float* dbias,
                              float* dx) {
  make_room();
  const std::size_t width_in = padded(inputs());
  for (std::size_t first = 0; first < outputs(); first += k_panel) {
    const std::size_t k = std::min(k_panel, outputs() - first);
    float* const block = transposed_.data() + first * width_in;
    if (!is_same) {
      kernels_.parts.pack_transposed({inputs(), k, k_panel}, weight(memory) + first * inputs(),
                                     block);
    }
    kernels_.product({.m = rows,
                      .k = k,
                      .panels = width_in / k_panel,
                      .a = dy + first * rows,
                      .a_row = k_panel,
                      .b = block,
                      .c = dx,
                      .c_row = k_panel,
                      .c_panel = rows * k_panel,
                      .accumulate = first > 0});
  }
  if (dbias != nullptr) {
    if (!accumulate) {
      std::fill_n(dbias, width_in, 0.0F);
    }
    kernels_.relu_backward(rows, width_in, x, dx, dbias);
  }
}

} // namespace trainer
