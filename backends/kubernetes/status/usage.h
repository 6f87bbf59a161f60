// Resource usage of a job's Pods, from the metrics API (metrics.k8s.io), which metrics-server or
// another program serves if the cluster has it.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"

#include <optional>
#include <string_view>
#include <vector>

namespace dtrain::kubernetes {

/// Usage of the instances that the metrics API knows: those that have run for some seconds. Throws
/// NotFound if there is no such job, EngineError if the cluster has no such API.
std::vector<InstanceUsage> instance_usage(ApiClient& api, const JobRef& job);

} // namespace dtrain::kubernetes
