// The nodes on which a job's Pods may run, and the resources that they request.
#pragma once

#include "backends/kubernetes/render/pod_roles.h"

#include <nlohmann/json_fwd.hpp>

namespace dtrain::kubernetes {

/// Adds to job.yaml's data: `scheduler`, `priority`, `nodes`, `selectors`, `tolerations`,
/// `spreads`, `binpack`, `limits` and `requests`, each list with its has_NAME. Throws UsageError
/// naming the flag that cannot be read.
void add_placement(const JobSpec& job, const PodRole& role, nlohmann::json& data);

} // namespace dtrain::kubernetes
