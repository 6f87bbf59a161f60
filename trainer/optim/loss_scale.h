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

#include <cstdint>
#include <optional>

namespace trainer {

struct LossScaleOptions {
  double fixed = 1; ///< 0: dynamic.
  std::int64_t initial_power = 16;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
  std::int64_t is_consecutive = 0; ///< Whole again with each step without an overflow.
  double least = 1;

  bool is_dynamic() const { return fixed == 0; }
  bool operator==(const LossScaleOptions&) const = default;
};

/// Where a scaler stands, for checkpoints and other ranks.
struct LossScale {
  double scale = 1;
  std::int64_t step = 0;
  std::int64_t last_overflow = -1;
  std::int64_t hysteresis = 1; ///< Left.

  bool operator==(const LossScale&) const = default;
};

/// Of a run's beginning.
LossScale first_loss_scale(const LossScaleOptions& options);

/// Of the step after; none where the scale would have to be less than the least.
std::optional<LossScale> next_loss_scale(const LossScaleOptions& options, LossScale now,
                                         bool overflows);

} // namespace trainer
