// The local backend's plan: templates/local/job.yaml, filled in by render, read by the supervisor.
#pragma once

#include "backends/backend.h"
#include "backends/supervised/gang_plan.h"

#include <string>
#include <vector>

namespace dtrain {

/// What a plan depends on besides the job.
struct LocalMachine {
  std::string working_dir;             ///< Where submit was called.
  std::string trainer;                 ///< The bundled trainer's path; empty: not found.
  std::vector<std::string> gpus;       ///< As CUDA_VISIBLE_DEVICES names them, free ones first.
  std::string code_dir;                ///< Where the job's code will be.
  std::string tensorboard;             ///< Its program; empty: not found.
  std::vector<std::string> secret_env; ///< KEY=VALUE of --env-file and --secret.
  std::size_t gpus_in_use = 0;         ///< How many at the end of them other jobs hold.
};

/// Throws UsageError where the job asks for what this machine lacks.
Plan render_local_plan(const JobSpec& job, const LocalMachine& machine,
                       const Templates& templates = {});

/// Throws EngineError naming what is wrong in the text.
GangPlan read_local_plan(const std::string& text);

/// The devices of all its ranks, as CUDA_VISIBLE_DEVICES names them.
std::vector<std::string> devices_of(const GangPlan& plan);

} // namespace dtrain
