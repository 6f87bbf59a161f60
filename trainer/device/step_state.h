// A step's state, in one small struct in the device's memory: kernels read from there what they
// update by, so that the host waits for none of it, and what a step puts on a stream is the same
// every time. Two kernels of one thread each write it:
//
//   begin    what the host knows before the step: its number, learning rate, how many samples. It
//            makes what a sample's loss is multiplied by, and the constants of the updates
//   prepare  from the gradients' sum of squares, over all ranks: their norm, the factor that
//            unscales and clips them, and whether the step is skipped, which moves the loss scale
//
// The squares of gradients in 16 bits that have overflowed are no finite number either, so clipping
// and skipping are one decision, and all ranks make it alike. Where neither is asked for there is
// no prepare(). The arithmetic here is both the CPU's and the GPU's.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "trainer/device/loss_scale.h"
#include "trainer/on_both.h"

namespace trainer {

/// What is the same in each step of a run.
struct StepRule {
  /// How the step's size is made of the learning rate and of 1 - β1^t.
  enum class Size : std::int32_t { rate, corrected_rate, correction };
  Size size = Size::corrected_rate;
  float clip_norm = 0; ///< 0: not clipped.
  double beta1 = 0.9;
  double beta2 = 0.999;
  std::int32_t is_in_16_bits = 0; ///< The loss is scaled, and steps that overflow are skipped.
  LossScaleOptions loss_scale = {};
};

/// What the host knows before a step. It may be behind the device by a few, of which it does not
/// know yet whether they were skipped.
struct StepInput {
  static constexpr std::int64_t k_rates = 4;
  std::int64_t step = 1;
  std::int64_t samples = 1;           ///< Over all ranks; 0: what this rank has counts for nothing.
  std::int64_t skipped = 0;           ///< That it knows of.
  double learning_rate[k_rates] = {}; ///< Where 0, 1, … more were skipped.
};

struct StepState {
  LossScale loss_scale = {};
  std::int64_t step = 0;
  std::int64_t skipped = 0; ///< Of these.
  double learning_rate = 0;
  float loss_factor = 1; ///< What a sample's loss is multiplied by.
  float step_size = 0;
  float inverse_correction2 = 1; ///< 1 / sqrt(1 - β2^t)
  float factor = 1;              ///< What gradients are multiplied by; no number: nothing changes.
  float norm = 0;                ///< Of the gradients, where it was asked for.
  std::int32_t is_at_least = 0;  ///< It overflowed, and the loss scale could not be less.
};

inline constexpr float k_no_number = std::numeric_limits<float>::quiet_NaN();
inline constexpr float k_largest_float = std::numeric_limits<float>::max();

// `static`, as sets of kernels are compiled for unlike machines.

/// What brings a norm down to `limit`: at most 1, and no number where the norm is none, or
/// infinite, so that no such gradient reaches a parameter.
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
  const double scale = rule.is_in_16_bits != 0 ? state.loss_scale.scale : 1;
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

/// Whether the gradients are none to update by.
DTRAIN_ON_BOTH static inline bool is_skipped(const StepState& state) {
  return !(state.factor <= k_largest_float);
}

DTRAIN_ON_BOTH static inline void prepare_step(const StepRule& rule, double squares,
                                               StepState& state) {
  const double scale = rule.is_in_16_bits != 0 ? state.loss_scale.scale : 1;
  const double norm = sqrt(squares) / scale;
  const float clipping =
      clipping_factor(norm, rule.clip_norm > 0 ? rule.clip_norm : k_largest_float);
  state.norm = static_cast<float>(norm);
  state.factor *= clipping;
  state.skipped += is_skipped(state) ? 1 : 0;
  if (rule.is_in_16_bits != 0 &&
      !next_loss_scale(rule.loss_scale, state.loss_scale, is_skipped(state))) {
    state.is_at_least = 1;
  }
}

} // namespace trainer
