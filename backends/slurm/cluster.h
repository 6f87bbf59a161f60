// Which cluster Slurm's commands speak to.
#pragma once

#include <string>

namespace dtrain::slurm {

/// The name of the cluster that sbatch and squeue reach from here, from slurm.conf; empty: not
/// known.
std::string cluster_here();

} // namespace dtrain::slurm
