// What the cluster has: nodes, the GPUs that Pods on them asked for, and a namespace's claims.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"

namespace dtrain::kubernetes {

/// By name, two requests. Who may not list nodes, or all Pods, gets what those of its own namespace
/// say.
std::vector<NodeStatus> list_nodes(ApiClient& api);

/// GPUs of `node` that Pods may have.
int allocatable_gpus(const nlohmann::json& node);

/// The PersistentVolumeClaims of a namespace, by name.
std::vector<Claim> list_claims(ApiClient& api, const std::string& namespace_name);

} // namespace dtrain::kubernetes
