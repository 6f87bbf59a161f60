// The local backend's plan: templates/local/job.yaml, filled in by render, read by the supervisor.
#pragma once

#include "backends/backend.h"
#include "backends/supervised/gang_plan.h"

#include <map>
#include <string>
#include <vector>

namespace dtrain {

/// `code_dir`: where the job's code will be. Throws UsageError where the job asks for what this
/// machine lacks.
Plan render_local_plan(const JobSpec& job, const Surroundings& here, const std::string& code_dir,
                       const Templates& templates = {});

/// Surroundings::data_folders, of this machine; and as a plan has them.
std::map<std::string, std::string> data_folders(const JobSpec& job);
std::map<std::string, std::string> data_folders(const JobSpec& job, const GangPlan& plan);

/// Throws EngineError naming what is wrong in the text.
GangPlan read_local_plan(const std::string& text);

/// The devices of all its ranks, as CUDA_VISIBLE_DEVICES names them.
std::vector<std::string> devices_of(const GangPlan& plan);

} // namespace dtrain
