// Jobs' statuses as they change, also through a restart of the API server.
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/api/api_client.h"

namespace dtrain::kubernetes {

/// Backend::watch_all().
void watch_jobs(ApiClient& api, const std::string& namespace_name,
                const std::vector<std::string>& names, const NewsSink& sink);

} // namespace dtrain::kubernetes
