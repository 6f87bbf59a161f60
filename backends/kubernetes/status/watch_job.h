// A job's status as it changes, also through a restart of the API server.
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/api/api_client.h"

namespace dtrain::kubernetes {

/// Backend::watch().
void watch_job(ApiClient& api, const JobRef& ref, const StatusSink& sink);

} // namespace dtrain::kubernetes
