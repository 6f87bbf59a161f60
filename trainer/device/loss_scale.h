// What a loss is multiplied by so that gradients in 16 bits do not vanish, as DeepSpeed's
// DynamicLossScaler has it:
//
//   overflow  `hysteresis` of them in all are forgiven but the last; from then on each halves the
//             scale, down to the least; one at the least is an error. The step is skipped
//   window    so many steps without one double the scale, and the hysteresis is whole again
//
// With a fixed scale nothing changes. It is a function of the steps so far alone, so that all ranks
// have the same.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/on_both.h"

namespace trainer {

struct LossScaleOptions {
  double fixed = 1; ///< 0: dynamic.
  std::int64_t initial_power = 16;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
  std::int64_t is_consecutive = 0; ///< Whole again with each step without an overflow.
  double least = 1;

  DTRAIN_ON_BOTH bool is_dynamic() const { return fixed == 0; }
  bool operator==(const LossScaleOptions&) const = default;
};

/// A scaler's state, for checkpoints and other ranks.
struct LossScale {
  double scale = 1;
  std::int64_t step = 0;
  std::int64_t last_overflow = -1;
  std::int64_t hysteresis = 1; ///< Left.

  bool operator==(const LossScale&) const = default;
};

/// Of a run's beginning.
inline LossScale first_loss_scale(const LossScaleOptions& options) {
  return {.scale = options.is_dynamic() ? std::ldexp(1.0, static_cast<int>(options.initial_power))
                                        : options.fixed,
          .hysteresis = options.hysteresis};
}

/// Goes on to the step after; false, and nothing changes, where the scale would have to be less
/// than the least. `static`, as sets of kernels are compiled for unlike machines.
DTRAIN_ON_BOTH static inline bool next_loss_scale(const LossScaleOptions& options, LossScale& now,
                                                  bool overflows) {
  if (options.is_dynamic() && overflows) {
    if (options.hysteresis > 1 && now.hysteresis > 1) {
      --now.hysteresis;
    } else if (now.scale <= options.least) {
      return false;
    } else {
      now.scale = now.scale / 2 < options.least ? options.least : now.scale / 2;
    }
    now.last_overflow = now.step;
  } else if (options.is_dynamic()) {
    const bool is_window_full = (now.step - now.last_overflow) % options.window == 0;
    if (options.is_consecutive != 0 || is_window_full) {
      now.hysteresis = options.hysteresis;
    }
    now.scale *= is_window_full ? 2 : 1;
  }
  ++now.step;
  return true;
}

} // namespace trainer
