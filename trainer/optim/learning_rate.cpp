#include "trainer/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"

namespace trainer {

double LearningRate::at(double done) const {
  if (goes_by_updates(schedule)) {
    const double number = std::round(done / update);
    // DeepSpeed's scheduler first steps after the first update.
    return schedule == Schedule::one_cycle       ? (number < 1 ? first : cycling(number - 1))
           : number >= 1                         ? warming(number - 1)
           : schedule == Schedule::warmup_cosine ? 0
                                                 : first;
  }
  if (schedule == Schedule::constant || whole <= 0) {
    return peak;
  }
  const double left = 1 - std::clamp(done / whole, 0.0, 1.0);
  return schedule == Schedule::linear ? peak * left
                                      : peak * (1 - std::cos(std::numbers::pi * left)) / 2;
}

double LearningRate::warming(double number) const {
  const double steps = std::max(2.0, rise);
  const double after = std::max(1.0, fall - steps);
  const bool is_cosine = schedule == Schedule::warmup_cosine;
  if (number < steps) {
    const double risen =
        is_linear != 0 ? number / steps : 1 / std::log(steps) * std::log(number + 1);
    return is_cosine ? peak * (first + risen * (1 - first)) : first + (peak - first) * risen;
  }
  if (is_cosine) {
    const double progress = std::min(1.0, (number - steps + 1) / after);
    const double share = (1 + std::cos(std::numbers::pi * progress)) / 2;
    return peak * std::max(0.0, last + (1 - last) * share);
  }
  return schedule == Schedule::warmup
             ? peak
             : first + (peak - first) * std::max(0.0, (fall - number) / after);
}

double LearningRate::cycling(double number) const {
  const double total = rise + fall;
  if (number >= total) {
    const double intervals = decay_every > 0 ? (number - total + 1) / decay_every : 0;
    return first / (1 + decay_rate * intervals);
  }
  const double place = std::fmod(number + 1, total); // At its very end, 0: where it began.
  const bool rises = place <= rise;
  const double stairs = rises ? rise_stairs : fall_stairs;
  const double share = rises ? place / rise : (total - place) / fall;
  return first + (peak - first) * (stairs > 0 ? std::floor(share * stairs) / stairs : share);
}

bool goes_by_updates(LearningRate::Schedule schedule) {
  return schedule >= LearningRate::Schedule::warmup;
}

std::string LearningRate::text() const {
  return fmt::format("{:g}, {}", peak, schedule_name(schedule));
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {
      "constant", "linear", "cosine", "warmup", "warmup-decay", "warmup-cosine", "one-cycle"};
  return names;
}

LearningRate::Schedule parse_schedule(const std::string& name) {
  const auto& names = schedule_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    throw UsageError(
        fmt::format("--lr-schedule={}: must be one of {}", name, fmt::join(names, ", ")));
  }
  return static_cast<LearningRate::Schedule>(found - names.begin());
}

std::string schedule_name(LearningRate::Schedule schedule) {
  return schedule_names()[static_cast<std::size_t>(schedule)];
}

} // namespace trainer
