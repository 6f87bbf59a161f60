// Scripts that replace a launcher's (mpirun, deepspeed) remote shell if its workers are not on
// other hosts: they are in the job's folder and start workers here, without SSH.
#pragma once

#include "backends/supervised/store/job_store.h"
#include "submit/rank_env.h"

namespace dtrain {

/// Writes the scripts into `bin` of the job's folder.
void write_launcher_tools(const JobFolder& folder);

/// Puts `bin` in front of PATH, and lets Open MPI run as root: containers' launchers do.
void add_launcher_env(EnvVars& env, const JobFolder& folder);

} // namespace dtrain
