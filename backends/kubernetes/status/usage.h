// What the Pods of a job use, from the metrics API (metrics.k8s.io), which metrics-server or
// another program serves where the cluster has it.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"

#include <optional>
#include <string_view>
#include <vector>

namespace dtrain::kubernetes {

/// Of the instances that the metrics API knows of: those that have run for some seconds. Throws
/// NotFound where there is no such job, EngineError where the cluster has no such API.
std::vector<InstanceUsage> instance_usage(ApiClient& api, const JobRef& job);

} // namespace dtrain::kubernetes
