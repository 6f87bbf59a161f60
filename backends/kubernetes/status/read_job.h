// A job's objects as the cluster has them now.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/status/status.h"

namespace dtrain::kubernetes {

[[noreturn]] void throw_no_such_job(const JobRef& ref);

/// dtrain's, not another tool's.
bool is_ours(const nlohmann::json& object);

/// The Job. Throws NotFound if there is none.
nlohmann::json read_job(ApiClient& api, const JobRef& ref);

/// The JobSet of that name, or the one that a TrainJob will have; null where there is neither, or
/// no such API, or it is not for us.
nlohmann::json read_set(ApiClient& api, const JobRef& ref);

/// The Jobs, their Pods, and the events about them where these could say why it waits: 2 requests
/// at once, or 3. NotFound where there is no such job.
JobObjects read_objects(ApiClient& api, const JobRef& ref);

/// Events about its Jobs and their Pods, oldest first.
std::vector<JobEvent> read_events(ApiClient& api, const JobRef& ref);

/// The leases of the nodes that a job runs on: one by one, or, of many, all there are at once.
void read_leases(ApiClient& api, JobObjects& objects);

/// The failed rank's last lines, into the status of a failed job.
void add_last_lines(ApiClient& api, const JobObjects& objects, JobStatus& status);

} // namespace dtrain::kubernetes
