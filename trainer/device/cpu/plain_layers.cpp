#include "trainer/device/cpu/plain_layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/cpu/matmul.h"
#include "trainer/device/halves.h"

namespace trainer {
namespace {

void layer_softmax(Stream& /*stream*/, std::size_t rows, std::size_t classes, const float* logits,
                   const std::int32_t* labels, const float* scale, float* change, Score* score) {
  const float weight = scale == nullptr ? 0 : *scale;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* z = logits + row * classes;
    float* dz = change + row * classes;
    const auto label = static_cast<std::size_t>(labels[row]);
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

void layer_score(Stream& stream, const DenseShape& shape, const float* x, const float* weight,
                 const float* bias, const std::int32_t* labels, const float* scale, float* change,
                 float* dx, Score* score) {
  cpu_matmul(stream, shape.forward(x, weight, bias, change));
  layer_softmax(stream, shape.rows, shape.outputs, change, labels, scale, change, score);
  if (dx != nullptr) {
    cpu_matmul(stream, shape.backward_input(change, weight, Matmul::Epilogue::drelu, x, dx));
  }
}

void weight_gradients(Stream& stream, std::size_t count, const Matmul* products) {
  for (std::size_t i = 0; i < count; ++i) {
    cpu_matmul(stream, products[i]);
  }
}

// A convolution is a product with a matrix whose rows are the pixels that each output reads
// (im2col): one image at a time, four rows a pool, 9 · channels values a row.

std::size_t row_of(const ConvolutionShape& s) { return 9 * s.channels; }

/// Calls `each` with each tap of a row and the pixel of the image that it reads; -1: outside.
template <typename Each>
void for_taps(const ConvolutionShape& s, std::size_t row, const Each& each) {
  const std::size_t pool = row / 4;
  for (std::size_t tap = 0; tap < 9; ++tap) {
    // Shifted by 1, so that neither is negative.
    const std::size_t y = pool / (s.width / 2) * 2 + row % 4 / 2 + tap / 3;
    const std::size_t x = pool % (s.width / 2) * 2 + row % 2 + tap % 3;
    const bool is_inside = y > 0 && y <= s.height && x > 0 && x <= s.width;
    each(tap, is_inside ? static_cast<std::ptrdiff_t>((y - 1) * s.width + x - 1) : -1);
  }
}

/// The matrix of an image, (4 · P, 9 · C).
const float* gather_taps(const ConvolutionShape& s, const float* image) {
  float* const rows = room_for(Room::layer, 4 * s.pools() * row_of(s));
  for (std::size_t row = 0; row < 4 * s.pools(); ++row) {
    for_taps(s, row, [&](std::size_t tap, std::ptrdiff_t pixel) {
      float* const to = rows + row * row_of(s) + tap * s.channels;
      if (pixel < 0) {
        std::fill_n(to, s.channels, 0.0F);
      } else {
        std::copy_n(image + static_cast<std::size_t>(pixel) * s.channels, s.channels, to);
      }
    });
  }
  return rows;
}

/// The gradient of an image's outputs (4 · P, O), from the gradient of its pools.
const float* spread(const ConvolutionShape& s, const float* dy, const std::uint8_t* chosen) {
  float* const to = room_for(Room::layer2, 4 * s.pools() * s.outputs);
  std::fill_n(to, 4 * s.pools() * s.outputs, 0.0F);
  for (std::size_t i = 0; i < s.pools() * s.outputs; ++i) {
    if (chosen[i] < 4) {
      to[(i / s.outputs * 4 + chosen[i]) * s.outputs + i % s.outputs] = dy[i];
    }
  }
  return to;
}

void convolution(Stream& stream, const ConvolutionShape& s, const float* x, const float* weight,
                 const float* bias, float* y, std::uint8_t* chosen) {
  const DenseShape product{4 * s.pools(), row_of(s), s.outputs};
  float* const sums = room_for(Room::layer2, product.rows * s.outputs);
  for (std::size_t image = 0; image < s.images; ++image) {
    const float* const rows = gather_taps(s, x + image * s.height * s.width * s.channels);
    cpu_matmul(stream, product.forward(rows, weight, nullptr, sums, Matmul::Epilogue::none));
    for (std::size_t i = 0; i < s.pools() * s.outputs; ++i, ++y, ++chosen) {
      const float* const four = sums + i / s.outputs * 4 * s.outputs + i % s.outputs;
      float best = four[0];
      *chosen = 0;
      for (std::size_t quarter = 1; quarter < 4; ++quarter) {
        const float sum = four[quarter * s.outputs];
        if (!(sum <= best) && !std::isnan(best)) {
          best = sum;
          *chosen = static_cast<std::uint8_t>(quarter);
        }
      }
      *y = best + bias[i % s.outputs];
      if (*y <= 0) { // Keeps a NaN.
        *y = 0;
        *chosen = 4;
      }
    }
  }
}

void convolution_backward_weight(Stream& stream, const ConvolutionShape& s, const float* x,
                                 const float* dy, const std::uint8_t* chosen, bool accumulate,
                                 float* /*room*/, float* dweight, float* dbias) {
  const DenseShape product{4 * s.pools(), row_of(s), s.outputs};
  for (std::size_t image = 0; image < s.images; ++image) {
    const std::size_t pooled = image * s.pools() * s.outputs;
    cpu_matmul(stream,
               product.backward_weight(gather_taps(s, x + image * s.height * s.width * s.channels),
                                       spread(s, dy + pooled, chosen + pooled),
                                       accumulate || image > 0, dweight, dbias));
  }
}

void convolution_backward_input(Stream& stream, const ConvolutionShape& s, const float* dy,
                                const std::uint8_t* chosen, const float* weight, float* dx) {
  const DenseShape product{4 * s.pools(), row_of(s), s.outputs};
  const std::size_t values = s.height * s.width * s.channels;
  std::fill_n(dx, s.images * values, 0.0F);
  for (std::size_t image = 0; image < s.images; ++image, dx += values) {
    const std::size_t pooled = image * s.pools() * s.outputs;
    float* const rows = room_for(Room::layer, product.rows * product.inputs);
    cpu_matmul(stream, product.backward_input(spread(s, dy + pooled, chosen + pooled), weight,
                                              false, rows));
    for (std::size_t row = 0; row < product.rows; ++row) {
      for_taps(s, row, [&](std::size_t tap, std::ptrdiff_t pixel) {
        if (pixel >= 0) {
          const float* const from = rows + row * row_of(s) + tap * s.channels;
          float* const to = dx + static_cast<std::size_t>(pixel) * s.channels;
          for (std::size_t channel = 0; channel < s.channels; ++channel) {
            to[channel] += from[channel];
          }
        }
      });
    }
  }
}

} // namespace

void plain_gather(Stream& stream, const Gathering& g) {
  const CpuKernels& kernels = CpuStream::kernels_of(stream);
  for (std::size_t row = 0; row < g.rows; ++row) {
    const std::uint64_t sample = g.order(g.first + row);
    kernels.bytes_to_floats(stream, g.features, g.images + sample * g.features,
                            g.to + row * g.features);
    g.to_labels[row] = label_at(g.labels, g.label_type, sample);
  }
}

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

const LayerKernels k_plain_layers = {layer_softmax,
                                     layer_score,
                                     weight_gradients,
                                     convolution,
                                     convolution_backward_weight,
                                     convolution_backward_input};

} // namespace trainer
