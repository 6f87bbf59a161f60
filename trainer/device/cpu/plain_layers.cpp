#include "trainer/device/cpu/plain_layers.h"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

void dense(Stream& /*stream*/, const DenseShape& s, const float* x, const float* weight,
           const float* bias, bool relu, float* y) {
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t o = 0; o < s.outputs; ++o) {
      float sum = bias[o];
      for (std::size_t i = 0; i < s.inputs; ++i) {
        sum += x[row * s.inputs + i] * weight[o * s.inputs + i];
      }
      y[row * s.outputs + o] = relu && sum < 0 ? 0 : sum; // A NaN stays one.
    }
  }
}

void dense_backward_weight(Stream& /*stream*/, const DenseShape& s, const float* x, const float* dy,
                           bool accumulate, float* dweight, float* dbias) {
  if (!accumulate) {
    std::fill_n(dweight, s.outputs * s.inputs, 0.0F);
    std::fill_n(dbias, s.outputs, 0.0F);
  }
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t o = 0; o < s.outputs; ++o) {
      const float change = dy[row * s.outputs + o];
      dbias[o] += change;
      for (std::size_t i = 0; i < s.inputs; ++i) {
        dweight[o * s.inputs + i] += change * x[row * s.inputs + i];
      }
    }
  }
}

void dense_backward_input(Stream& /*stream*/, const DenseShape& s, const float* dy,
                          const float* weight, const float* x, float* dx) {
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t i = 0; i < s.inputs; ++i) {
      float sum = 0;
      for (std::size_t o = 0; o < s.outputs; ++o) {
        sum += dy[row * s.outputs + o] * weight[o * s.inputs + i];
      }
      dx[row * s.inputs + i] = x[row * s.inputs + i] > 0 ? sum : 0;
    }
  }
}

void layer_softmax(Stream& /*stream*/, std::size_t rows, std::size_t classes, const float* logits,
                   const std::uint8_t* labels, float scale, float* change, Score* score) {
  for (std::size_t row = 0; row < rows; ++row) {
    const float* z = logits + row * classes;
    float* dz = change + row * classes;
    const std::size_t label = labels[row];
    const float* largest = std::max_element(z, z + classes);
    const float maximum = *largest;
    const float shifted = z[label] - maximum;
    score->correct += static_cast<std::size_t>(largest - z) == label ? 1 : 0;
    float sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      dz[c] = std::exp(z[c] - maximum);
      sum += dz[c];
    }
    for (std::size_t c = 0; c < classes; ++c) {
      dz[c] = (dz[c] / sum - (c == label ? 1.0F : 0.0F)) * scale;
    }
    score->loss += std::log(sum) - shifted;
  }
  score->count += static_cast<std::int64_t>(rows);
}

} // namespace

const LayerKernels k_plain_layers = {dense, dense_backward_weight, dense_backward_input,
                                     layer_softmax};

} // namespace trainer
