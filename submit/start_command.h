// The command that starts the ranks of a job, on every engine.
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <vector>

namespace dtrain {

/// The job's command; for a rayjob preceded by the script that starts Ray
/// (templates/launchers/ray.sh). Empty, or its first word is a flag: arguments of the bundled
/// trainer.
std::vector<std::string> start_command(const JobSpec& job);

} // namespace dtrain
