#include "trainer/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {

double LearningRate::at(double done) const {
  if (schedule == Schedule::constant || whole <= 0) {
    return peak;
  }
  const double left = 1 - std::clamp(done / whole, 0.0, 1.0);
  return schedule == Schedule::linear ? peak * left
                                      : peak * (1 - std::cos(std::numbers::pi * left)) / 2;
}

std::string LearningRate::text() const {
  return fmt::format("{:g}, {}", peak, schedule_name(schedule));
}

LearningRate::Schedule parse_schedule(const std::string& name) {
  using enum LearningRate::Schedule;
  for (const auto schedule : {constant, linear, cosine}) {
    if (name == schedule_name(schedule)) {
      return schedule;
    }
  }
  throw UsageError(fmt::format("--lr-schedule={}: must be constant, linear or cosine", name));
}

std::string schedule_name(LearningRate::Schedule schedule) {
  switch (schedule) {
  case LearningRate::Schedule::linear:
    return "linear";
  case LearningRate::Schedule::cosine:
    return "cosine";
  case LearningRate::Schedule::constant:
    break;
  }
  return "constant";
}

} // namespace trainer
