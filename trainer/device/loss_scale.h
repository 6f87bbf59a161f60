// The factor of the loss that keeps 16-bit gradients from underflowing, as DeepSpeed's
// DynamicLossScaler computes it:
//
//   overflow  the step is skipped. `hysteresis` - 1 overflows are tolerated; each further one
//   halves
//             the scale, down to `least`; an overflow at `least` is an error
//   window    this many steps without an overflow double the scale and restore the hysteresis
//
// A fixed scale never changes. The scale depends only on the steps so far, so all ranks have the
// same.
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
  std::int64_t is_consecutive = 0; ///< Each step without overflow restores the hysteresis.
  double least = 1;

  DTRAIN_ON_BOTH bool is_dynamic() const { return fixed == 0; }
  bool operator==(const LossScaleOptions&) const = default;
};

/// State of a scaler, saved in checkpoints and sent to other ranks.
struct LossScale {
  double scale = 1;
  std::int64_t step = 0;
  std::int64_t last_overflow = -1;
  std::int64_t hysteresis = 1; ///< Left.

  bool operator==(const LossScale&) const = default;
};

/// The state at the start of a run.
inline LossScale first_loss_scale(const LossScaleOptions& options) {
  return {.scale = options.is_dynamic() ? std::ldexp(1.0, static_cast<int>(options.initial_power))
                                        : options.fixed,
          .hysteresis = options.hysteresis};
}

/// Advances to the next step. Returns false, and changes nothing, if the scale would fall below
/// `least`. `static`: each set of kernels is compiled for other instructions.
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
