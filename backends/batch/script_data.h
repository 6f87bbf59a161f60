// The data of a job's script, for any queue: its steps, and its ranks' environment and command
// (templates/batch/job.sh, ranks.sh).
#pragma once

#include "backends/batch/queue_system.h"
#include "submit/job_spec.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace dtrain::batch {

/// Facts that a job's script takes from the machine on which the queue's commands run.
struct LoginFacts {
  std::string state_folder; ///< Where jobs keep their files.
  std::string working_dir;  ///< Where `submit` was called, or the login's folder.
  std::string trainer = {}; ///< The bundled trainer's path; empty: not found, or not needed.
};

/// Roles that ask for the same, started as one step.
struct Step {
  int first = 0; ///< Number of the first of the job's instances.
  int tasks = 0;
  int gpus = 0; ///< A task.
  bool ranked = true;
  const char* kind = "decides"; ///< What the end of a rank means for the job, to the script.
};

std::vector<Step> steps_of(const JobSpec& job);

/// A launcher runs in the batch script; its workers are the allocation's slots, one task each, and
/// run what it starts there: one step has all of them.
bool has_launcher(const JobSpec& job);

/// Whole CPUs of a task; 0: not said.
int cpus_of(const JobSpec& job);

/// Bytes of a task.
std::optional<double> memory_of(const JobSpec& job);

/// [{"word": …}], of a template's {{#words}} {{word}}{{/words}}.
nlohmann::json words(const std::vector<std::string>& texts);

/// Throws UsageError where the job asks for what no queue has a way to give.
nlohmann::json script_data(const JobSpec& job, const LoginFacts& login, const QueueSystem& system);

} // namespace dtrain::batch
