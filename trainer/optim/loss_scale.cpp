#include "trainer/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace trainer {

LossScale first_loss_scale(const LossScaleOptions& options) {
  return {.scale = options.is_dynamic() ? std::ldexp(1.0, static_cast<int>(options.initial_power))
                                        : options.fixed,
          .hysteresis = options.hysteresis};
}

std::optional<LossScale> next_loss_scale(const LossScaleOptions& options, LossScale now,
                                         bool overflows) {
  if (!options.is_dynamic()) {
    ++now.step;
    return now;
  }
  if (overflows) {
    if (options.hysteresis > 1 && now.hysteresis > 1) {
      --now.hysteresis;
    } else if (now.scale <= options.least) {
      return std::nullopt;
    } else {
      now.scale = std::max(now.scale / 2, options.least);
    }
    now.last_overflow = now.step;
  } else {
    const bool is_window_full = (now.step - now.last_overflow) % options.window == 0;
    if (options.is_consecutive != 0 || is_window_full) {
      now.hysteresis = options.hysteresis;
    }
    now.scale *= is_window_full ? 2 : 1;
  }
  ++now.step;
  return now;
}

} // namespace trainer
