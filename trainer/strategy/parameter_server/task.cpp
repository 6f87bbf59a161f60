#include "trainer/strategy/parameter_server/task.h"

#include <cmath>

namespace trainer {

nlohmann::json job_settings(const PsTask& task, const TrainerOptions& options) {
  return {{"seed", options.seed},     {"batch size", options.batch_size},
          {"hidden", options.hidden}, {"workers", task.workers.size()},
          {"epochs", options.epochs}, {"steps", options.steps},
          {"update", options.update}};
}

std::int64_t steps_of_epochs(const PsTask& task, const TrainerOptions& options,
                             std::size_t samples) {
  const auto global_batch =
      static_cast<double>(options.batch_size) * static_cast<double>(task.workers.size());
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(samples) * static_cast<double>(options.epochs) / global_batch));
}

} // namespace trainer
