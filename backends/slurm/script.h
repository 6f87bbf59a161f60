// The input of sbatch: templates/slurm/job.sbatch, filled in.
#pragma once

#include "backends/batch/job_line.h"
#include "backends/batch/script_data.h"
#include "submit/template/templates.h"

#include <string>

namespace dtrain::slurm {

/// Pure. Throws UsageError where the job asks for what Slurm has no way to give.
std::string render_script(const JobSpec& job, const Templates& templates,
                          const batch::LoginFacts& login);

/// Slurm's own options of the job, as far as backends/batch has to know them.
batch::QueueOptions queue_options(const JobSpec& job);

} // namespace dtrain::slurm
