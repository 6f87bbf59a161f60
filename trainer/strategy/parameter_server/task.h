// One task of a job with parameter servers, as TF_CONFIG says it.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/optim/learning_rate.h"
#include "trainer/options.h"

namespace trainer {

struct PsTask {
  std::vector<std::string> servers; ///< host:port
  std::vector<std::string> workers;
  std::string chief; ///< Empty: none.
  enum class Role { server, worker, chief } role = Role::worker;
  int index = 0;
  std::string token;
};

/// What must be alike on workers and chief, whatever the data.
nlohmann::json job_settings(const PsTask& task, const TrainerOptions& options);

/// Of an update. The same as workers without servers have after as many samples.
LearningRate learning_rate(const PsTask& task, const TrainerOptions& options, std::size_t samples);

/// Of one worker, to see `samples` so often as options.epochs says; whole steps.
std::int64_t steps_of_epochs(const PsTask& task, const TrainerOptions& options,
                             std::size_t samples);

} // namespace trainer
