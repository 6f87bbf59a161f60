// The loops over flat ranges, plain: a set of kernels that includes this has them for its own
// instructions, as the compiler vectorises them. Nothing here calls an inline function of a
// library, which would end up in code that others share, with those instructions.
#pragma once

#include <cstddef>

#include "trainer/device/cpu/kernels.h"

namespace trainer::flat {
namespace {

void sgd(Stream& /*stream*/, std::size_t n, const UpdateRule& r, const float* gradient, float* m,
         float* parameter) {
  const float factor = r.factor == nullptr ? 1 : *r.factor;
  for (std::size_t i = 0; i < n; ++i) {
    m[i] = r.beta1 * m[i] + (gradient[i] * factor + r.l2 * parameter[i]);
    parameter[i] -= r.step_size * m[i];
  }
}

/// In lanes, so that the order of a sum, and with it its bits, is the same whatever the compiler
/// makes of it; in double, of which no gradient's square leaves the range.
double sum_of_squares(std::size_t n, const float* values) {
  constexpr std::size_t k_lanes = 16;
  double lanes[k_lanes] = {};
  std::size_t i = 0;
  for (; i + k_lanes <= n; i += k_lanes) {
    for (std::size_t j = 0; j < k_lanes; ++j) {
      lanes[j] += double{values[i + j]} * double{values[i + j]};
    }
  }
  for (; i < n; ++i) {
    lanes[i % k_lanes] += double{values[i]} * double{values[i]};
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

void lamb(Stream& /*stream*/, std::size_t n, const UpdateRule& r, const float* gradient, float* m,
          float* v, float* u, float* parameter) {
  const float factor = r.factor == nullptr ? 1 : *r.factor;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * factor;
    m[i] = r.beta1 * m[i] + (1 - r.beta1) * g;
    v[i] = r.beta2 * v[i] + (1 - r.beta2) * (g * g);
    u[i] = r.step_size * m[i] / (__builtin_sqrtf(v[i]) * r.inverse_correction2 + r.epsilon) +
           r.decay * parameter[i];
  }
  const double of_parameters = __builtin_sqrt(sum_of_squares(n, parameter));
  const double of_direction = __builtin_sqrt(sum_of_squares(n, u));
  const double ratio = of_parameters > 0 && of_direction > 0 ? of_parameters / of_direction : 1.0;
  const auto rate = static_cast<float>(double{r.learning_rate} * ratio);
  for (std::size_t i = 0; i < n; ++i) {
    parameter[i] -= rate * u[i];
  }
}

void max_pool_relu(const Pooling& p, const float* y, const float* bias, float* to,
                   unsigned char* chosen) {
  const std::size_t below = p.grid.pitch() * p.channels;
  for (std::size_t row = 0; row < p.rows; ++row) {
    for (std::size_t py = 0; py < p.grid.height / 2; ++py) {
      for (std::size_t px = 0; px < p.grid.width / 2; ++px) {
        const float* from =
            y + (row * p.grid.image() + 2 * py * p.grid.pitch() + 2 * px) * p.channels;
        float* at = to + row * p.to_row + py * p.to_y + px * p.to_x;
        for (std::size_t c = 0; c < p.channels; c += k_panel) {
          for (std::size_t j = 0; j < k_panel; ++j) { // NaN is kept, as where loss shows it.
            const float* four = from + c + j;
            float best = four[0];
            int which = 0;
            which = !(four[p.channels] <= best) ? 1 : which;
            best = !(four[p.channels] <= best) ? four[p.channels] : best;
            which = !(four[below] <= best) ? 2 : which;
            best = !(four[below] <= best) ? four[below] : best;
            which = !(four[below + p.channels] <= best) ? 3 : which;
            best = !(four[below + p.channels] <= best) ? four[below + p.channels] : best;
            best += bias[c + j];
            chosen[c + j] = static_cast<unsigned char>(best <= 0 ? 4 : which);
            at[j] = best <= 0 ? 0 : best;
          }
          at += p.to_panel;
        }
        chosen += p.channels;
      }
    }
  }
}

void max_pool_relu_backward(const Pooling& p, const unsigned char* chosen, const float* change,
                            float* dy, std::size_t plane, float* dbias) {
  const std::size_t below = p.grid.pitch() * k_panel;
  for (std::size_t row = 0; row < p.rows; ++row) {
    for (std::size_t py = 0; py < p.grid.height / 2; ++py) {
      for (std::size_t px = 0; px < p.grid.width / 2; ++px) {
        const float* from = change + row * p.to_row + py * p.to_y + px * p.to_x;
        float* at = dy + (row * p.grid.image() + 2 * py * p.grid.pitch() + 2 * px) * k_panel;
        for (std::size_t c = 0; c < p.channels; c += k_panel) {
          for (std::size_t j = 0; j < k_panel; ++j) {
            const int which = chosen[c + j];
            const float value = which == 4 ? 0 : from[j];
            at[j] = which == 0 ? value : 0;
            at[k_panel + j] = which == 1 ? value : 0;
            at[below + j] = which == 2 ? value : 0;
            at[below + k_panel + j] = which == 3 ? value : 0;
            dbias[c + j] += value;
          }
          from += p.to_panel;
          at += plane;
        }
        chosen += p.channels;
      }
    }
  }
}

void clip_factor(Stream& /*stream*/, std::size_t n, const float* gradient, float limit, float* norm,
                 float* factor) {
  constexpr double k_epsilon = 1e-6; // As PyTorch's clip_grad_norm_ adds it.
  const double found = __builtin_sqrt(sum_of_squares(n, gradient));
  *norm = static_cast<float>(found);
  const double scale = double{limit} / (found + k_epsilon);
  *factor = static_cast<float>(scale < 1 ? scale : 1.0);
}

} // namespace
} // namespace trainer::flat
