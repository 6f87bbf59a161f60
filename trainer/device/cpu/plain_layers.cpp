#include "trainer/device/cpu/plain_layers.h"

#include <algorithm>
#include <cmath>

#include "trainer/device/halves.h"

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
                   const std::uint8_t* labels, const float* scale, float* change, Score* score) {
  const float weight = scale == nullptr ? 0 : *scale;
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
      dz[c] = (dz[c] / sum - (c == label ? 1.0F : 0.0F)) * weight;
    }
    score->loss += std::log(sum) - shifted;
  }
  score->count += static_cast<std::int64_t>(rows);
}

/// Calls `each` with the pixel of `x` and the number of the weight, within an output's, that each
/// tap and channel of a pool's pixel reads.
template <typename Each>
void for_taps(const ConvolutionShape& s, std::size_t image, std::size_t pool, std::size_t quarter,
              const Each& each) {
  for (std::size_t tap = 0; tap < 9; ++tap) {
    const std::size_t y = pool / (s.width / 2) * 2 + quarter / 2 + tap / 3; // One more than it is.
    const std::size_t x = pool % (s.width / 2) * 2 + quarter % 2 + tap % 3;
    if (y == 0 || y > s.height || x == 0 || x > s.width) {
      continue;
    }
    const std::size_t pixel = (image * s.height + y - 1) * s.width + x - 1;
    for (std::size_t channel = 0; channel < s.channels; ++channel) {
      each(pixel * s.channels + channel, tap * s.channels + channel);
    }
  }
}

void convolution(Stream& /*stream*/, const ConvolutionShape& s, const float* x, const float* weight,
                 const float* bias, float* y, std::uint8_t* chosen) {
  for (std::size_t i = 0; i < s.images * s.pools() * s.outputs; ++i) {
    const std::size_t output = i % s.outputs;
    const std::size_t pool = i / s.outputs;
    float best = 0;
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      float sum = 0;
      for_taps(s, pool / s.pools(), pool % s.pools(), quarter,
               [&](std::size_t pixel, std::size_t tap) {
                 sum += x[pixel] * weight[output * 9 * s.channels + tap];
               });
      if (quarter == 0 || (!(sum <= best) && !std::isnan(best))) {
        best = sum;
        chosen[i] = static_cast<std::uint8_t>(quarter);
      }
    }
    y[i] = best + bias[output];
    if (y[i] <= 0) { // A NaN stays one.
      y[i] = 0;
      chosen[i] = 4;
    }
  }
}

/// Calls `each` as for_taps(), with the gradient and the output of each pool's that passed any on.
template <typename Each>
void for_changes(const ConvolutionShape& s, const float* dy, const std::uint8_t* chosen,
                 const Each& each) {
  for (std::size_t i = 0; i < s.images * s.pools() * s.outputs; ++i) {
    const std::size_t pool = i / s.outputs;
    if (chosen[i] < 4) {
      for_taps(s, pool / s.pools(), pool % s.pools(), chosen[i],
               [&](std::size_t pixel, std::size_t tap) { each(dy[i], i % s.outputs, pixel, tap); });
    }
  }
}

void convolution_backward_weight(Stream& /*stream*/, const ConvolutionShape& s, const float* x,
                                 const float* dy, const std::uint8_t* chosen, bool accumulate,
                                 float* /*room*/, float* dweight, float* dbias) {
  if (!accumulate) {
    std::fill_n(dweight, s.outputs * 9 * s.channels, 0.0F);
    std::fill_n(dbias, s.outputs, 0.0F);
  }
  for_changes(s, dy, chosen,
              [&](float change, std::size_t output, std::size_t pixel, std::size_t tap) {
                dweight[output * 9 * s.channels + tap] += change * x[pixel];
              });
  for (std::size_t i = 0; i < s.images * s.pools() * s.outputs; ++i) {
    dbias[i % s.outputs] += chosen[i] < 4 ? dy[i] : 0.0F;
  }
}

void convolution_backward_input(Stream& /*stream*/, const ConvolutionShape& s, const float* dy,
                                const std::uint8_t* chosen, const float* weight, float* dx) {
  std::fill_n(dx, s.images * s.height * s.width * s.channels, 0.0F);
  for_changes(s, dy, chosen,
              [&](float change, std::size_t output, std::size_t pixel, std::size_t tap) {
                dx[pixel] += change * weight[output * 9 * s.channels + tap];
              });
}

} // namespace

void plain_narrow(Stream& /*stream*/, std::size_t n, DType type, const float* from, void* to) {
  auto* const halves = static_cast<std::uint16_t*>(to);
  for (std::size_t i = 0; i < n; ++i) {
    halves[i] = type == DType::bf16 ? Bf16::narrow(from[i]) : Fp16::narrow(from[i]);
  }
}

void plain_widen(Stream& /*stream*/, std::size_t n, DType type, const void* from, float* to) {
  const auto* const halves = static_cast<const std::uint16_t*>(from);
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = type == DType::bf16 ? Bf16::widen(halves[i]) : Fp16::widen(halves[i]);
  }
}

const LayerKernels k_plain_layers = {
    dense,       dense_backward_weight,       dense_backward_input,      layer_softmax,
    convolution, convolution_backward_weight, convolution_backward_input};

} // namespace trainer
