// Which cluster Slurm's commands speak to.
#pragma once

#include <string>

namespace dtrain::slurm {

/// What sbatch and squeue speak to from here, as slurm.conf names it; empty: not known.
std::string cluster_here();

} // namespace dtrain::slurm
