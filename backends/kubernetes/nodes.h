// The cluster's nodes, and the GPUs that Pods on them asked for.
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/api_client.h"

namespace dtrain::kubernetes {

/// By name. Two requests; EngineError where nodes may not be listed.
std::vector<NodeStatus> list_nodes(ApiClient& api);

/// GPUs of `node` that Pods may have.
int allocatable_gpus(const nlohmann::json& node);

} // namespace dtrain::kubernetes
