// The local backend's plan: where its ranks' data and GPUs are on this machine.
#pragma once

#include "backends/plan.h"

#include <map>
#include <string>

namespace dtrain {

/// `code_dir`: where the job's code will be. Throws UsageError where the job asks for what this
/// machine lacks.
Plan render_local_plan(const JobSpec& job, const Surroundings& here, const std::string& code_dir,
                       const Templates& templates = {});

/// Surroundings::data_folders, of this machine.
std::map<std::string, std::string> folders_here(const JobSpec& job);

} // namespace dtrain
