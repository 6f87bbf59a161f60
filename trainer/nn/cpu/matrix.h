// Activations: rows of as many values as a layer is wide. The rows lie a cache line further apart
// than they are long, so that a strip of few columns does not meet in a few sets of a cache.
#pragma once

#include <cstddef>

#include "trainer/device/buffer.h"
#include "trainer/device/cpu/kernels.h"

namespace trainer {

class Matrix {
 public:
  Matrix() = default;
  /// `width`: a multiple of 16. Zeros.
  Matrix(std::size_t rows, std::size_t width)
      : width_(width), stride_(width + k_panel), values_(rows * stride_) {}

  std::size_t width() const { return width_; }
  std::size_t stride() const { return stride_; }
  float* data() const { return values_.data(); }
  float* row(std::size_t number) const { return values_.data() + number * stride_; }
  /// Of its first so many rows.
  RowShape shape(std::size_t rows) const { return {rows, width_, stride_}; }

 private:
  std::size_t width_ = 0;
  std::size_t stride_ = 0;
  Buffer values_{0};
};

} // namespace trainer
