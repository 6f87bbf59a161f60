// What the instances of a job use, as usage.sh says it, and what the queue said of a job besides
// its ranks' output.
#pragma once

#include "backends/job_status.h"

#include <string_view>
#include <vector>

namespace dtrain::batch {

/// Of the lines "INSTANCE CPUS BYTES", in the order of `instances`, with their nodes and GPUs.
std::vector<InstanceUsage> read_usage(std::string_view text,
                                      const std::vector<InstanceStatus>& instances);

/// A line each of what the queue's commands and daemons said. `text`: "FILE SECONDS" a file, its
/// lines, and an empty one: when it was last written to.
std::vector<JobEvent> read_events(std::string_view text);

} // namespace dtrain::batch
