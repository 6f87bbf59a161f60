// Making and removing a job's objects, and reading them as they are now.
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/api_client.h"
#include "backends/kubernetes/status.h"

#include <string>

namespace dtrain::kubernetes {

/// Creates the plan's objects: the Job, suspended, all that it owns, and then lets it run, so that
/// no Pod looks for a ConfigMap that is not there yet. 5 requests. Where one is refused, those made
/// are deleted again. Throws UsageError where a name is taken, EngineError
/// with the API's words for all else.
void create_objects(ApiClient& api, const Plan& plan, const SubmitSink& tell);

/// The plan's objects as the API would store them, through its admission and validation, with
/// nothing stored: --dry-run=server. Throws as create_objects() does.
std::vector<Plan::Document> try_objects(ApiClient& api, const Plan& plan);

/// The Job. NotFound where there is none.
nlohmann::json read_job(ApiClient& api, const JobRef& ref);

/// Deletes the Job and with it what it owns. NotFound where there is none.
void remove_objects(ApiClient& api, const JobRef& ref);

/// The Jobs, their Pods, and the events about them where these could say why it waits: 2 requests
/// at once, or 3. NotFound where there is no such job.
JobObjects read_objects(ApiClient& api, const JobRef& ref);

/// The failed rank's last lines, into the status of a failed job.
void add_last_lines(ApiClient& api, const JobObjects& objects, JobStatus& status);

[[noreturn]] void throw_no_such_job(const JobRef& ref);

} // namespace dtrain::kubernetes
