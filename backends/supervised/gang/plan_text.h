// A gang's plan as text: a template of the engine's, filled in by render, read by the supervisor.
#pragma once

#include "backends/plan.h"
#include "backends/supervised/gang/gang_plan.h"

#include <map>
#include <string>
#include <vector>

namespace dtrain {

/// What an engine decides of a plan; all else follows from the job.
struct GangParts {
  std::string template_name;   ///< "ENGINE/job.yaml"
  std::string code_dir;        ///< Where the job's code will be.
  std::vector<GangRank> ranks; ///< planned_ranks(), with their devices.
  int gpus_shared = 0;
  std::vector<Mount> mounts;
  std::vector<std::string> notices;
};

/// What is started of the job, in the order of ranks. Of a job with a launcher that is the launcher
/// alone, which holds the GPUs of the workers that it starts; on hosts, those workers too, which
/// wait there for what it starts.
std::vector<GangRank> planned_ranks(const JobSpec& job, bool on_hosts = false);

/// Throws UsageError where the job asks for what there is not.
Plan render_gang_plan(const JobSpec& job, const Surroundings& here, const Templates& templates,
                      GangParts parts);

/// Throws EngineError naming what is wrong in the text.
GangPlan read_gang_plan(const std::string& text);

/// Surroundings::data_folders, as a plan has them.
std::map<std::string, std::string> planned_folders(const JobSpec& job, const GangPlan& plan);

} // namespace dtrain
