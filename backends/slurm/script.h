// What is given to sbatch: templates/slurm/job.sbatch, filled in.
#pragma once

#include "backends/backend.h"

namespace dtrain::slurm {

/// Pure. Throws UsageError where the job asks for what Slurm has no way to give.
Plan render_script(const JobSpec& job, const Templates& templates, const Surroundings& here);

/// True where Slurm may start the job anew: after a node failed, or for a job of higher priority.
bool may_requeue(const JobSpec& job);

/// Of the plan, and of the job's folder.
inline constexpr const char* k_script = "script.sbatch";

/// "slurm/NAMESPACE/NAME", below dtrain's own folder, in which a job's files are.
std::string job_folder(const JobRef& job);

/// Those that the script starts, in the order of their instances.
std::vector<InstanceStatus> planned_instances(const JobSpec& job);

} // namespace dtrain::slurm
