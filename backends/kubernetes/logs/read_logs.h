// A job's logs: of the Pods that there are, or of these and those to come as they are written, also
// through a restart of the API server.
#pragma once

#include "backends/job_output.h"
#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"

namespace dtrain::kubernetes {

/// Backend::logs().
void read_logs(ApiClient& api, const JobRef& ref, const LogQuery& query, const LogSink& sink);

} // namespace dtrain::kubernetes
