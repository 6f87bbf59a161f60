// What a launcher (mpirun, deepspeed) finds in front of its own programs where its workers are not
// other hosts: scripts in the job's folder that start them here, without SSH.
#pragma once

#include "backends/supervised/store/job_store.h"
#include "submit/rank_env.h"

namespace dtrain {

/// Writes the scripts into `bin` of the job's folder.
void write_launcher_tools(const JobFolder& folder);

/// Puts `bin` in front of PATH, and lets Open MPI run as root: containers' launchers do.
void add_launcher_env(EnvVars& env, const JobFolder& folder);

} // namespace dtrain
