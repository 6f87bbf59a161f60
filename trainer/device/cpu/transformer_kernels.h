// What a transformer does between its matrix products, row by row.
//
// A matrix has `rows` of `width` values, a multiple of 16, each row `stride` floats from the one
// before: more than the width, so that the rows of a narrow strip lie in different sets of a cache.
// What is dropped is one bit a value, `keep` (rows, width / 16): null keeps all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/text_kernels.h"

namespace trainer {

struct RowShape {
  std::size_t rows;
  std::size_t width;
  std::size_t stride;
};

struct TransformerKernels {
  void (*keep_bits)(const KeepBits& which, std::size_t words, std::uint16_t* to);

  /// x += bias
  void (*add_bias)(const RowShape& shape, const float* bias, float* x);
  /// to += the sum of x's rows
  void (*sum_rows)(const RowShape& shape, const float* x, float* to);

  /// x += bias, y = gelu(x), the exact one: x · Φ(x)
  void (*gelu)(const RowShape& shape, const float* bias, float* x, float* y);
  /// dy becomes dx = dy · gelu'(x), dbias += the sum of its rows
  void (*gelu_backward)(const RowShape& shape, const float* x, float* dy, float* dbias);

  /// to = dropped x, which may be its own memory
  void (*drop)(const RowShape& shape, const Dropped& dropped, const float* x, float* to);
  /// x = dropped (x + bias) + residual
  void (*drop_and_add)(const RowShape& shape, const Dropped& dropped, const float* bias,
                       const float* residual, float* x);

  /// y = (x - mean) / sqrt(variance + epsilon) · gain + shift; `moments` (rows, 2) become mean and
  /// 1 / sqrt(variance + epsilon).
  void (*norm)(const RowShape& shape, const float* x, const float* gain, const float* shift,
               float epsilon, float* y, float* moments);
  /// dy becomes dx, dgain and dshift +=
  void (*norm_backward)(const RowShape& shape, const float* x, const float* moments,
                        const float* gain, float* dy, float* dgain, float* dshift);

  /// Of each row's first `keys` values x = softmax(x · scale), of the others 0; to = dropped x.
  void (*softmax)(const RowShape& shape, std::size_t keys, float scale, const Dropped& dropped,
                  float* x, float* to);
  /// Of x that softmax() has made, and the gradient of what it dropped: dx = that of its input.
  void (*softmax_backward)(const RowShape& shape, float scale, const Dropped& dropped,
                           const float* x, float* dx);

  // Cross-entropy of tokens over classes: a row is a class's logits, a column a token.

  /// x += bias (rows), and of each column largest = max(largest, …), sum = Σ exp(x - largest), with
  /// what both were before: -inf and 0 to begin with.
  void (*log_sum)(const RowShape& shape, const float* bias, float* x, float* largest, float* sum);
  /// x = exp(x - log_sum) · weight, dbias (rows) += the sum of each row.
  void (*probabilities)(const RowShape& shape, const float* log_sum, const float* weight, float* x,
                        float* dbias);

  /// from (rows, width) → panels of its columns, rows filled up with zeros to whole panels:
  /// to (rows / 16, width, 16). Of its transpose it is the panel layout.
  void (*pack_transposed)(const RowShape& shape, const float* from, float* to);
  /// panels (outputs / 16, inputs, 16) → those of the transpose (inputs / 16, outputs, 16).
  void (*transpose_panels)(std::size_t outputs, std::size_t inputs, const float* from, float* to);
};

} // namespace trainer
