#include "trainer/strategy/parameter_server/task.h"

#include <algorithm>
#include <cmath>

namespace trainer {

nlohmann::json job_settings(const PsTask& task, const TrainerOptions& options) {
  return {{"seed", options.seed},           {"batch size", options.batch_size},
          {"model", options.model},         {"hidden", options.hidden},
          {"workers", task.workers.size()}, {"epochs", options.epochs},
          {"steps", options.steps},         {"update", options.update}};
}

LearningRate learning_rate(const PsTask& task, const TrainerOptions& options, std::size_t samples) {
  const auto batch = static_cast<double>(options.batch_size);
  const double global_batch = batch * static_cast<double>(task.workers.size());
  const double whole = std::max(static_cast<double>(samples) * static_cast<double>(options.epochs),
                                global_batch * static_cast<double>(options.steps));
  return {options.learning_rate, parse_schedule(options.lr_schedule),
          whole / (options.update == "sync" ? global_batch : batch)};
}

std::int64_t steps_of_epochs(const PsTask& task, const TrainerOptions& options,
                             std::size_t samples) {
  const auto global_batch =
      static_cast<double>(options.batch_size) * static_cast<double>(task.workers.size());
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(samples) * static_cast<double>(options.epochs) / global_batch));
}

} // namespace trainer
