// The state of a step: one small struct in device memory. Kernels read their constants from it, so
// that the host never waits, and a step queues the same work every time (CUDA graphs). Two kernels
// of one thread each write it:
//
//   begin    from what the host knows before the step (its number, learning rate, samples): the
//            factor of a sample's loss, and the constants of the update
//   prepare  from the sum of squares of the gradients over all ranks: their norm, the factor that
//            unscales and clips them, whether the step is skipped, which adapts the loss scale, and
//            the gradient that is to blame
//
// If 16-bit gradients overflow, their sum of squares is not finite either: clipping and skipping
// are one decision, the same on all ranks. Without both, prepare() is not called. CPU and GPU share
// this arithmetic.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "trainer/device/loss_scale.h"
#include "trainer/on_both.h"

namespace trainer {

/// The constants of a run.
struct StepRule {
  /// How the step size follows from the learning rate and 1 - β1^t.
  enum class Size : std::int32_t { rate, corrected_rate, correction };
  Size size = Size::corrected_rate;
  float clip_norm = 0; ///< 0: no clipping.
  double beta1 = 0.9;
  double beta2 = 0.999;
  std::int32_t skips_overflows = 0; ///< The loss is scaled, and steps that overflow are skipped.
  LossScaleOptions loss_scale = {};
};

/// What the host knows before a step. The device may be a few steps ahead, of which the host does
/// not know yet whether they were skipped.
struct StepInput {
  static constexpr std::int64_t k_rates = 4;
  std::int64_t step = 1;
  std::int64_t samples = 1;           ///< Over all ranks; 0: this rank's gradient is not counted.
  std::int64_t skipped = 0;           ///< Skipped steps known to the host.
  double learning_rate[k_rates] = {}; ///< The rate if 0, 1, … more were skipped.
};

inline constexpr float k_no_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr float k_largest_float = std::numeric_limits<float>::max();
inline constexpr double k_infinity = std::numeric_limits<double>::infinity();

/// Of some values of an arena.
struct SquareSum {
  double sum = 0;
  /// The place of the first of them that is not finite; infinity: all are. Exact below 2^53.
  double not_finite = k_infinity;
};

struct StepState {
  LossScale loss_scale = {};
  std::int64_t step = 0;
  std::int64_t skipped = 0; ///< Skipped steps among them.
  double learning_rate = 0;
  float loss_factor = 1; ///< Factor of a sample's loss.
  float step_size = 0;
  float inverse_correction2 = 1;  ///< 1 / sqrt(1 - β2^t)
  float factor = 1;               ///< Factor of gradients; NaN: the step changes nothing.
  float norm = 0;                 ///< Norm of the gradients, if requested.
  std::int32_t is_at_least = 0;   ///< Overflow at the smallest loss scale.
  double not_finite = k_infinity; ///< SquareSum's, of all gradients.
};

// `static`: each set of kernels is compiled for other instructions.

/// Of n sums, `stride` apart, in this order.
DTRAIN_ON_BOTH static inline SquareSum sum_of(std::size_t n, std::size_t stride,
                                              const SquareSum* from) {
  SquareSum all;
  for (std::size_t i = 0; i < n; ++i) {
    const SquareSum& one = from[i * stride];
    all.sum += one.sum;
    all.not_finite = one.not_finite < all.not_finite ? one.not_finite : all.not_finite;
  }
  return all;
}

/// The factor that brings a norm down to `limit`: at most 1; NaN if the norm is NaN or infinite, so
/// that no such gradient reaches a parameter.
DTRAIN_ON_BOTH static inline float clipping_factor(double norm, float limit) {
  constexpr double k_epsilon = 1e-6; // As PyTorch's clip_grad_norm_ adds it.
  if (!(static_cast<float>(norm) <= k_largest_float)) {
    return k_no_number;
  }
  const double scale = double{limit} / (norm + k_epsilon);
  return scale < 1 ? static_cast<float>(scale) : 1.0F;
}

DTRAIN_ON_BOTH static inline void begin_step(const StepRule& rule, const StepInput& input,
                                             StepState& state) {
  const std::int64_t behind = state.skipped - input.skipped;
  const std::int64_t last = StepInput::k_rates - 1;
  const double rate = input.learning_rate[behind < 0 ? 0 : behind > last ? last : behind];
  const auto t = static_cast<double>(input.step - state.skipped);
  const double correction1 = 1 - pow(rule.beta1, t);
  const double scale = rule.skips_overflows != 0 ? state.loss_scale.scale : 1;
  state.step = input.step;
  state.learning_rate = rate;
  state.loss_factor =
      input.samples == 0 ? 0.0F : static_cast<float>(scale) / static_cast<float>(input.samples);
  state.step_size =
      static_cast<float>(rule.size == StepRule::Size::rate         ? rate
                         : rule.size == StepRule::Size::correction ? 1 / correction1
                                                                   : rate / correction1);
  state.inverse_correction2 = static_cast<float>(1 / sqrt(1 - pow(rule.beta2, t)));
  state.factor = static_cast<float>(1 / scale);
  state.norm = 0;
  state.is_at_least = 0;
}

/// Whether the gradients are unusable and the step changes nothing.
DTRAIN_ON_BOTH static inline bool is_skipped(const StepState& state) {
  return !(state.factor <= k_largest_float);
}

DTRAIN_ON_BOTH static inline void prepare_step(const StepRule& rule, const SquareSum& squares,
                                               StepState& state) {
  const double scale = rule.skips_overflows != 0 ? state.loss_scale.scale : 1;
  const double norm = sqrt(squares.sum) / scale;
  state.not_finite = squares.not_finite;
  const float clipping =
      clipping_factor(norm, rule.clip_norm > 0 ? rule.clip_norm : k_largest_float);
  state.norm = static_cast<float>(norm);
  state.factor *= clipping;
  state.skipped += is_skipped(state) ? 1 : 0;
  if (rule.skips_overflows != 0 &&
      !next_loss_scale(rule.loss_scale, state.loss_scale, is_skipped(state))) {
    state.is_at_least = 1;
  }
}

} // namespace trainer
