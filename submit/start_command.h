// What the ranks of a job are started with, on every engine.
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <vector>

namespace dtrain {

/// The job's command; a rayjob's behind the script that starts Ray (templates/launchers/ray.sh).
/// Empty, or its first word a flag: the bundled trainer's arguments.
std::vector<std::string> start_command(const JobSpec& job);

} // namespace dtrain
