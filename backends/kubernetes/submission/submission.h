// Making and removing a job's objects.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"
#include "backends/plan.h"

#include <vector>

namespace dtrain::kubernetes {

/// Creates the plan's objects: the Job, suspended, all that it owns, and then lets it run, so that
/// no Pod looks for a ConfigMap that is not there yet. 5 requests. Where one is refused, those made
/// are deleted again. Throws UsageError where a name is taken, EngineError
/// with the API's words for all else.
void create_objects(ApiClient& api, const Plan& plan, const SubmitSink& tell);

/// The plan's objects as the API would store them, through its admission and validation, with
/// nothing stored: --dry-run=server. Throws as create_objects() does.
std::vector<Plan::Document> try_objects(ApiClient& api, const Plan& plan);

/// Deletes the Job and with it what it owns. Throws NotFound if there is none.
void remove_objects(ApiClient& api, const JobRef& ref);

} // namespace dtrain::kubernetes
