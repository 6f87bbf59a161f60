// What is given to sbatch: templates/slurm/job.sbatch, filled in.
#pragma once

#include "backends/batch/job_line.h"
#include "backends/plan.h"

namespace dtrain::slurm {

/// Pure. Throws UsageError where the job asks for what Slurm has no way to give.
Plan render_script(const JobSpec& job, const Templates& templates, const Surroundings& here);

/// Slurm's own options of the job, as the room of queues has to know them.
batch::QueueOptions queue_options(const JobSpec& job);

} // namespace dtrain::slurm
