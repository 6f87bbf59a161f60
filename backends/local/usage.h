// Resource usage of this machine and its processes, measured over a moment.
#pragma once

#include "backends/job_status.h"

#include <string>
#include <vector>

namespace dtrain {

/// This machine, with `gpus` GPUs of which `gpus_requested` are given to jobs.
NodeStatus node_usage(const std::string& node, int gpus, int gpus_requested);

/// The instances that run, each with all processes below it.
std::vector<InstanceUsage> instance_usage(const std::vector<InstanceStatus>& instances);

} // namespace dtrain
