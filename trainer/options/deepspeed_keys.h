// The keys of DeepSpeed's configuration that are many of a kind (options/deepspeed.h reads them).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/optim/learning_rate.h"

namespace trainer {

/// What DeepSpeed 0.19 knows and this trainer does nothing with. One that ends with a dot has keys
/// of its own, which are not looked at.
const std::vector<std::string_view>& keys_without_effect();

/// Those of them, or of their own keys, that are true where they are left out, and that the trainer
/// does as if they were: it is false that asks for something else.
const std::vector<std::string_view>& keys_true_by_default();

struct ScheduleType {
  const char* name;
  LearningRate::Schedule schedule;
  LearningRate defaults;
  std::map<std::string, double LearningRate::*> keys; ///< All that are numbers.
};

const std::vector<ScheduleType>& schedule_types();

} // namespace trainer
