#include "trainer/strategy/parameter_server/task.h"

#include <algorithm>

namespace trainer {

nlohmann::json job_settings(const PsJob& job) {
  return {{"seed", job.run.seed},
          {"batch size", job.batch_size()},
          {"model", job.run.model.name},
          {"hidden", shape_text(job.run.model)},
          {"workers", job.task.workers.size()},
          {"epochs", job.run.epochs},
          {"steps", job.run.steps},
          {"update", job.policy.sync ? "sync" : "async"}};
}

LearningRate learning_rate(const PsJob& job, std::size_t samples) {
  const std::int64_t whole = std::max(static_cast<std::int64_t>(samples) * job.run.epochs,
                                      job.global_batch() * job.run.steps);
  const std::int64_t update = job.policy.sync ? job.global_batch() : job.batch_size();
  LearningRate rate = job.run.learning_rate;
  rate.whole = static_cast<double>(whole) / static_cast<double>(update);
  return rate;
}

std::int64_t steps_of(const PsJob& job, std::size_t samples) {
  const std::int64_t all = static_cast<std::int64_t>(samples) * job.run.epochs;
  return job.run.steps > 0 ? job.run.steps : (all + job.global_batch() - 1) / job.global_batch();
}

} // namespace trainer
