// The cluster's resources: nodes, the GPUs requested by Pods on them, and a namespace's claims.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"

namespace dtrain::kubernetes {

/// Ordered by name; two requests. Without the right to list nodes, or all Pods, derived from the
/// Pods of the user's namespace.
std::vector<NodeStatus> list_nodes(ApiClient& api);

/// GPUs of `node` that Pods may have.
int allocatable_gpus(const nlohmann::json& node);

/// The PersistentVolumeClaims of a namespace, by name.
std::vector<Claim> list_claims(ApiClient& api, const std::string& namespace_name);

} // namespace dtrain::kubernetes
