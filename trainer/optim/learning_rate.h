// The learning rate over a run: constant, or decaying to 0 at the end; or one of DeepSpeed's
// schedules, which count updates and equal `deepspeed.runtime.lr_schedules` for Adam:
//
//   warmup         first → peak over `rise` updates, by the logarithm or evenly; then held
//   warmup-decay   the same, then evenly down to `first` at update `fall`
//   warmup-cosine  the same in shares of the peak, then half a cosine down to the share `last`
//   one-cycle      first → peak over `rise` updates and back over `fall`, each in stairs if asked
//                  for; then first / (1 + decay_rate · updates / decay_every)
//
// It depends only on how much of the run is done, so a resumed run, also with another number of
// ranks, continues as if it had not stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

struct LearningRate {
  enum class Schedule : std::int64_t {
    constant,
    linear,
    cosine,
    warmup,
    warmup_decay,
    warmup_cosine,
    one_cycle
  };

  double peak = 1e-3;
  Schedule schedule = Schedule::constant;
  double whole = 0; ///< The run's length, in the unit of at(): samples, or updates.

  // DeepSpeed's schedules; its names are warmup_* and cycle_*:
  double update = 1;          ///< An update's length, in the unit of at().
  double first = 0;           ///< min_lr; warmup-cosine: min_ratio
  double rise = 1000;         ///< num_steps, first_step_size
  double fall = 0;            ///< total_num_steps, second_step_size
  double last = 1e-4;         ///< cos_min_ratio
  std::int64_t is_linear = 0; ///< warmup_type
  double rise_stairs = 0;     ///< first_stair_count
  double fall_stairs = 0;     ///< second_stair_count
  double decay_every = 0;     ///< decay_step_size
  double decay_rate = 0;      ///< decay_lr_rate

  bool operator==(const LearningRate&) const = default;

  /// The rate of the step that begins after `done` of the run.
  double at(double done) const;

  std::string text() const; ///< "0.001, cosine"

 private:
  double warming(double update) const;
  double cycling(double update) const;
};

/// Whether it is one of DeepSpeed's schedules.
bool goes_by_updates(LearningRate::Schedule schedule);

/// "constant", "warmup-decay"
const std::vector<std::string>& schedule_names();
LearningRate::Schedule parse_schedule(const std::string& name);
std::string schedule_name(LearningRate::Schedule schedule);

} // namespace trainer
