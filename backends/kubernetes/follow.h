// What goes on for as long as a job does: its status as it changes, its Pods' logs as they are
// written. Both watch, and go on through a restart of the API server.
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/api_client.h"

namespace dtrain::kubernetes {

/// Backend::watch().
void watch_job(ApiClient& api, const JobRef& ref, const StatusSink& sink);

/// Backend::logs(). Without `follow`, the Pods that there are; with it, also those to come.
void read_logs(ApiClient& api, const JobRef& ref, const LogQuery& query, const LogSink& sink);

} // namespace dtrain::kubernetes
