// Plain loops, written for reading: the oracle of the vectorised kernels.
#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/device/cpu/bf16_by_float32.h"
#include "trainer/device/cpu/convolution.h"
#include "trainer/device/cpu/epilogues.h"
#include "trainer/device/cpu/flat.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/device/cpu/lanes.h"
#include "trainer/device/cpu/matmul.h"
#include "trainer/device/cpu/plain_layers.h"
#include "trainer/device/cpu/vector_text.h"

namespace trainer {
namespace {

void gemm(const Gemm& g) {
  for (std::size_t panel = 0; panel < g.panels; ++panel) {
    const float* b = g.b + panel * flat::b_panel(g);
    for (std::size_t row = 0; row < g.m; ++row) {
      float* c = g.c + panel * g.c_panel + row * g.c_row;
      float sum[k_panel] = {};
      for (std::size_t k = 0; k < g.k; ++k) {
        const float a = g.a[row * g.a_row + k * g.a_column];
        for (std::size_t j = 0; j < k_panel; ++j) {
          sum[j] += a * b[k * g.b_row + j];
        }
      }
      for (std::size_t j = 0; j < k_panel; ++j) {
        c[j] = g.accumulate ? c[j] + sum[j] : sum[j];
      }
    }
  }
}

void bias_relu(std::size_t rows, std::size_t width, const float* bias, float* y) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t j = 0; j < width; ++j) {
      float& value = y[row * width + j];
      value = std::max(value + bias[j], 0.0F);
    }
  }
}

void relu_backward(std::size_t rows, std::size_t width, const float* y, float* dy, float* dbias) {
  for (std::size_t j = 0; j < width; ++j) {
    float* column = dy + j / k_panel * rows * k_panel + j % k_panel;
    float sum = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      float& value = column[row * k_panel];
      value = y[row * width + j] > 0 ? value : 0;
      sum += value;
    }
    dbias[j] += sum;
  }
}

/// For more classes than a panel has columns: each row is gathered from its panels and put back.
Score many_classes(std::size_t rows, std::size_t classes, const std::int32_t* labels,
                   const float* bias, float scale, float* logits, float* dbias) {
  Score score{.count = static_cast<std::int64_t>(rows)};
  std::vector<float> z(classes);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto at = [&](std::size_t c) -> float& {
      return logits[(c / k_panel * rows + row) * k_panel + c % k_panel];
    };
    for (std::size_t c = 0; c < classes; ++c) {
      z[c] = at(c) + bias[c];
    }
    const auto largest = std::max_element(z.begin(), z.end());
    const float maximum = *largest;
    const auto label = static_cast<std::size_t>(labels[row]);
    score.correct += static_cast<std::size_t>(largest - z.begin()) == label ? 1 : 0;
    const float shifted_label = z[label] - maximum;
    float sum = 0;
    for (float& value : z) {
      value = std::exp(value - maximum);
      sum += value;
    }
    score.loss += std::log(sum) - shifted_label;
    if (dbias == nullptr) {
      continue;
    }
    for (std::size_t c = 0; c < padded(classes); ++c) {
      const float change = c < classes ? (z[c] / sum - (c == label ? 1.0F : 0.0F)) * scale : 0.0F;
      at(c) = change;
      dbias[c] += change;
    }
  }
  return score;
}

Score softmax_cross_entropy(std::size_t rows, std::size_t classes, const std::int32_t* labels,
                            const float* bias, float scale, float* logits, float* dbias) {
  Score score{.count = static_cast<std::int64_t>(rows)};
  if (classes > k_panel) {
    return many_classes(rows, classes, labels, bias, scale, logits, dbias);
  }
  for (std::size_t row = 0; row < rows; ++row) {
    float* z = logits + row * k_panel;
    for (std::size_t c = 0; c < classes; ++c) {
      z[c] += bias[c];
    }
    const float* largest = std::max_element(z, z + classes);
    const float maximum = *largest;
    const auto label = static_cast<std::size_t>(labels[row]);
    score.correct += static_cast<std::size_t>(largest - z) == label ? 1 : 0;
    const float shifted_label = z[label] - maximum;
    float sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      z[c] = std::exp(z[c] - maximum);
      sum += z[c];
    }
    score.loss += std::log(sum) - shifted_label;
    if (dbias == nullptr) {
      continue;
    }
    for (std::size_t c = 0; c < classes; ++c) {
      z[c] = (z[c] / sum - (c == label ? 1.0F : 0.0F)) * scale;
      dbias[c] += z[c];
    }
    std::fill(z + classes, z + k_panel, 0.0F);
  }
  return score;
}

void adam(Stream& stream, std::size_t n, const UpdateRule& r, const StepState* state,
          const float* gradient, float* m, float* v, const Parameters& parameters) {
  if (is_skipped(*state)) {
    return;
  }
  float* const parameter = parameters.values;
  const float factor = state->factor;
  const float shrink = shrink_of(r, *state);
  const float step_size = state->step_size;
  const float correction2 = state->inverse_correction2;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * factor + r.l2 * parameter[i];
    m[i] = r.beta1 * m[i] + (1 - r.beta1) * g;
    v[i] = r.beta2 * v[i] + (1 - r.beta2) * (g * g);
    parameter[i] =
        shrink * parameter[i] - step_size * m[i] / (std::sqrt(v[i]) * correction2 + r.epsilon);
  }
  flat::write_rounded(stream, n, parameters);
}

void bytes_to_floats(Stream& /*stream*/, std::size_t n, const std::uint8_t* from, float* to) {
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = static_cast<float>(from[i]) * (1.0F / 255.0F);
  }
}

using Bytes4 [[gnu::vector_size(4)]] = std::uint8_t;

} // namespace

const CpuKernels& portable_kernels() {
  static constexpr CpuKernels kernels = {
      {"portable",           "portable",      flat::begin,
       flat::prepare,        flat::sgd,       adam,
       flat::lamb_direction, flat::lamb_take, flat::muon_direction,
       flat::muon_take,      flat::normalise, flat::blend,
       cpu_matmul,           flat::squares,   flat::sum,
       bytes_to_floats,      plain_gather,    plain_narrow,
       plain_widen,          &k_plain_layers, &k_text_kernels<Lanes<Floats4, Bytes4>>},
      gemm,
      bf16_by_float32<Lanes<Floats4, Bytes4>, gemm>,
      gemm,
      bias_relu,
      relu_backward,
      softmax_cross_entropy,
      convolution_kernels<Lanes<Floats4, Bytes4>>(),
      matmul_parts<Lanes<Floats4, Bytes4>>(),
      attention_parts<Lanes<Floats4, Bytes4>>()};
  return kernels;
}

} // namespace trainer
