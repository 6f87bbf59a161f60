// What the instances of a job use, as usage.sh says it, and what Slurm said of a job besides its
// ranks' output.
#pragma once

#include "backends/backend.h"

#include <string_view>
#include <vector>

namespace dtrain::slurm {

/// Of the lines "INSTANCE CPUS BYTES", in the order of `instances`, with their nodes and GPUs.
std::vector<InstanceUsage> read_usage(std::string_view text,
                                      const std::vector<InstanceStatus>& instances);

/// A line each of what sbatch, srun and slurmstepd said. `text`: "FILE SECONDS" a file, its lines,
/// and an empty one: when it was last written to.
std::vector<JobEvent> read_events(std::string_view text);

} // namespace dtrain::slurm
