// Plain loops over flat ranges: a set of kernels that includes this compiles them for its own
// instructions, as the compiler vectorises them. Nothing here calls an inline function of a
// library, which would end up in code that others share, with those instructions.
#pragma once

#include <cstddef>

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/cpu/plain_layers.h"

namespace trainer::flat {
namespace {

inline std::size_t b_panel(const Gemm& g) { return g.b_panel == 0 ? g.k * k_panel : g.b_panel; }

void begin(Stream& stream, const StepRule& rule, const StepInput& input, StepState* state,
           const Gathering* gathering) {
  begin_step(rule, input, *state);
  if (gathering != nullptr) {
    plain_gather(stream, *gathering);
  }
}

void prepare(Stream& /*stream*/, const StepRule& rule, const SquareSum* squares, StepState* state,
             StepState* told) {
  prepare_step(rule, *squares, *state);
  if (told != nullptr) {
    *told = *state;
  }
}

/// From value `n` on.
inline Parameters behind(std::size_t n, Parameters parameters) {
  parameters.values += n;
  parameters.rounded += parameters.rounded == nullptr ? 0 : n;
  return parameters;
}

void write_rounded(Stream& stream, std::size_t n, const Parameters& parameters) {
  if (parameters.rounded != nullptr) {
    plain_narrow(stream, n, DType::bf16, parameters.values, parameters.rounded);
  }
}

void sgd(Stream& stream, std::size_t n, const UpdateRule& r, const StepState* state,
         const float* gradient, float* m, const Parameters& parameters) {
  if (is_skipped(*state)) {
    return;
  }
  float* const parameter = parameters.values;
  const float factor = state->factor;
  const float step_size = state->step_size;
  for (std::size_t i = 0; i < n; ++i) {
    m[i] = r.beta1 * m[i] + (gradient[i] * factor + r.l2 * parameter[i]);
    parameter[i] -= step_size * m[i];
  }
  write_rounded(stream, n, parameters);
}

/// Sums in lanes, so that the order of additions, and with it the bits, is the same whatever the
/// compiler generates; in double, whose range holds the square of any gradient.
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

void lamb_direction(Stream& /*stream*/, std::size_t n, const UpdateRule& r, const StepState* state,
                    const float* gradient, float* m, float* v, float* u, const float* parameter) {
  if (is_skipped(*state)) {
    return;
  }
  const float factor = state->factor;
  const float step_size = state->step_size;
  const float correction2 = state->inverse_correction2;
  const auto decay = static_cast<float>(r.decay);
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * factor;
    m[i] = r.beta1 * m[i] + (1 - r.beta1) * g;
    v[i] = r.beta2 * v[i] + (1 - r.beta2) * (g * g);
    u[i] =
        step_size * m[i] / (__builtin_sqrtf(v[i]) * correction2 + r.epsilon) + decay * parameter[i];
  }
}

void lamb_take(Stream& stream, std::size_t n, const StepState* state, const float* u,
               const Parameters& parameters) {
  if (is_skipped(*state)) {
    return;
  }
  float* const parameter = parameters.values;
  const double of_parameters = __builtin_sqrt(sum_of_squares(n, parameter));
  const double of_direction = __builtin_sqrt(sum_of_squares(n, u));
  const double ratio = of_parameters > 0 && of_direction > 0 ? of_parameters / of_direction : 1.0;
  const auto rate = static_cast<float>(state->learning_rate * ratio);
  for (std::size_t i = 0; i < n; ++i) {
    parameter[i] -= rate * u[i];
  }
  write_rounded(stream, n, parameters);
}

void muon_direction(Stream& /*stream*/, std::size_t n, const UpdateRule& r, const StepState* state,
                    const float* gradient, float* m, float* u) {
  if (is_skipped(*state)) {
    return;
  }
  const float factor = state->factor;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * factor;
    m[i] = r.beta1 * m[i] + (1 - r.beta1) * g;
    u[i] = (1 - r.beta1) * g + r.beta1 * m[i];
  }
}

void muon_take(Stream& stream, std::size_t n, const UpdateRule& r, const StepState* state,
               float ratio, const float* u, const Parameters& parameters) {
  if (is_skipped(*state)) {
    return;
  }
  float* const parameter = parameters.values;
  const float shrink = shrink_of(r, *state);
  const auto rate = static_cast<float>(state->learning_rate * double{ratio});
  for (std::size_t i = 0; i < n; ++i) {
    parameter[i] = shrink * parameter[i] - rate * u[i];
  }
  write_rounded(stream, n, parameters);
}

void normalise(Stream& /*stream*/, std::size_t n, const SquareSum* squares, float* x) {
  const float by = inverse_norm(squares->sum);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] *= by;
  }
}

void blend(Stream& /*stream*/, std::size_t n, float a, const float* x, float b, float* y) {
  for (std::size_t i = 0; i < n; ++i) {
    y[i] = a * x[i] + b * y[i];
  }
}

void squares(Stream& /*stream*/, std::size_t n, const float* values, std::size_t place,
             SquareSum* to) {
  to->sum = sum_of_squares(n, values);
  to->not_finite = __builtin_inf();
  for (std::size_t i = 0; i < n && !__builtin_isfinite(to->sum); ++i) {
    if (!__builtin_isfinite(values[i])) {
      to->not_finite = static_cast<double>(place + i);
      break;
    }
  }
}

void sum(Stream& /*stream*/, std::size_t n, std::size_t stride, const SquareSum* from,
         SquareSum* to) {
  *to = sum_of(n, stride, from);
}

} // namespace
} // namespace trainer::flat
