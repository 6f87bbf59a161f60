// A gang's plan as text: a template of the engine's, filled in by render, read by the supervisor.
#pragma once

#include "backends/plan.h"
#include "backends/supervised/gang/gang_plan.h"

#include <map>
#include <string>
#include <vector>

namespace dtrain {

/// Facts that a plan takes from where the job was submitted. A plan made again for a job that is
/// resumed or scaled takes them from the first one.
struct GangSite {
  std::string working_dir;             ///< Where submit was called.
  std::vector<std::string> secret_env; ///< KEY=VALUE of --env-file and --secret.
  std::string trainer;                 ///< The bundled trainer's path; empty: not found.
  std::string tensorboard;             ///< Path of its program; empty: not found.
  /// The folder that shows a share or bucket of --data, by its URL.
  std::map<std::string, std::string> data_folders;
  std::vector<HostSlots> hosts; ///< Hosts that ranks may be on; none: this one.
  std::string interface; ///< Network interface of the hosts at which ranks are reached; empty: any.
  int host_timeout_ms = 0; ///< After which a silent one is lost; 0: the engine's own.
};

/// Everything except secret_env, which is in no plan.
GangSite site_of(const GangPlan& plan, const JobSpec& job);

/// The engine's part of a plan; everything else follows from the job.
struct GangParts {
  std::string template_name;   ///< "ENGINE/job.yaml"
  std::string code_dir;        ///< Where the job's code will be.
  std::vector<GangRank> ranks; ///< planned_ranks(), with their devices.
  int gpus_shared = 0;
  std::vector<Mount> mounts;
  std::vector<std::string> notices;
};

/// The processes of the job, in the order of ranks. In a job with a launcher only the launcher,
/// which holds the GPUs of the workers that it starts; on hosts also the workers, which wait for
/// what the launcher starts there.
std::vector<GangRank> planned_ranks(const JobSpec& job, bool on_hosts = false);

/// Throws UsageError where the job asks for what there is not.
Plan render_gang_plan(const JobSpec& job, const GangSite& site, const Templates& templates,
                      GangParts parts);

/// Throws EngineError naming the fault in the text.
GangPlan read_gang_plan(const std::string& text);

} // namespace dtrain
