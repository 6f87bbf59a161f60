// What must be in the cluster before a job is created: APIs, queues, claims, Secrets, buckets.
#pragma once

#include "backends/kubernetes/api/api_client.h"
#include "backends/plan.h"
#include "submit/job_spec.h"

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Sets job.scheduler to the one that starts gangs in this cluster, and returns a line that says
/// so. Throws UsageError if there is none, or its name cannot be found out.
std::vector<std::string> choose_scheduler(ApiClient& api, JobSpec& job);

/// Throws UsageError, which names flag and API, where the cluster lacks an API of the job's, or
/// the queue. Asks nothing for a job that names none.
void require_apis(ApiClient& api, const JobSpec& job);

/// Throws UsageError for a claim or a Secret that the job names and the cluster does not have, and
/// for a bucket that refuses us. Who may not look learns it from the job's reason. False where the
/// job names none.
bool require_objects(ApiClient& api, const Plan& plan);

} // namespace dtrain::kubernetes
