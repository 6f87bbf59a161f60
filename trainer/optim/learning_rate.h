// The learning rate over a run: a peak, held or brought down to nothing by the end.
//
// It is a function of how much of the run is done and of nothing else, so a run that is resumed,
// also by another number of ranks, goes on as if it had not stopped.
#pragma once

#include <cstdint>
#include <string>

namespace trainer {

struct LearningRate {
  enum class Schedule : std::int64_t { constant, linear, cosine };

  double peak = 1e-3;
  Schedule schedule = Schedule::constant;
  double whole = 0; ///< The run's length, in the unit of at(): samples, or updates.

  bool operator==(const LearningRate&) const = default;

  /// Of the step that begins when `done` of the run is behind.
  double at(double done) const;

  std::string text() const; ///< "0.001, cosine"
};

/// "constant", "linear" or "cosine".
LearningRate::Schedule parse_schedule(const std::string& name);
std::string schedule_name(LearningRate::Schedule schedule);

} // namespace trainer
