// Resource usage of a job's instances, from usage.sh, and the queue's messages about a job beside
// its ranks' output.
#pragma once

#include "backends/job_status.h"

#include <string_view>
#include <vector>

namespace dtrain::batch {

/// From lines "INSTANCE CPUS BYTES", in the order of `instances`, with their nodes and GPUs.
std::vector<InstanceUsage> read_usage(std::string_view text,
                                      const std::vector<InstanceStatus>& instances);

/// One event per line of the queue's commands and daemons. `text`: for each file "FILE SECONDS"
/// (when it was last written), its lines, and an empty line.
std::vector<JobEvent> read_events(std::string_view text);

} // namespace dtrain::batch
