// `dtrain check` for a cluster: reachable, who we are, what we may do, what GPUs there are.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"

namespace dtrain::kubernetes {

std::vector<CheckResult> check_cluster(ApiClient& api);

} // namespace dtrain::kubernetes
