// The PersistentVolumeClaims of a namespace.
#pragma once

#include "backends/claim_source.h"
#include "backends/kubernetes/api_client.h"

namespace dtrain::kubernetes {

std::vector<Claim> list_claims(ApiClient& api, const std::string& namespace_name);

} // namespace dtrain::kubernetes
