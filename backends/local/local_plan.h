// The local backend's plan: where its ranks' data and GPUs are on this machine.
#pragma once

#include "backends/supervised/gang/plan_text.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dtrain {

struct MachineGpus {
  std::vector<std::string> devices; ///< As CUDA_VISIBLE_DEVICES names them, free ones first.
  std::size_t in_use = 0;           ///< How many at the end of `devices` are held by other jobs.
  std::set<std::string> users = {}; ///< The names of other users who have some of those.
};

/// `code_dir`: where the job's code will be. Throws UsageError where the job asks for what this
/// machine lacks.
Plan render_local_plan(const JobSpec& job, const GangSite& site, const MachineGpus& gpus,
                       const std::string& code_dir, const Templates& templates = {});

/// GangSite::data_folders, of this machine.
std::map<std::string, std::string> folders_here(const JobSpec& job);

} // namespace dtrain
