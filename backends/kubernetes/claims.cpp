#include "backends/kubernetes/claims.h"

#include "backends/kubernetes/objects.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::kubernetes {

using nlohmann::json;

std::vector<Claim> list_claims(ApiClient& api, const std::string& namespace_name) {
  std::vector<Claim> claims;
  for (const json& object : api.list(fmt::format("/api/v1/namespaces/{}/persistentvolumeclaims",
                                                 escape_url(namespace_name)))
                                .items) {
    Claim claim;
    claim.name = text_at(object, "metadata/name");
    claim.status = text_at(object, "metadata/deletionTimestamp").empty()
                       ? text_at(object, "status/phase")
                       : "Terminating";
    claim.size = text_at(object, "status/capacity/storage");
    if (claim.size.empty()) {
      claim.size = text_at(object, "spec/resources/requests/storage");
    }
    for (const json& mode : member(object, "spec/accessModes")) {
      claim.access_modes.push_back(mode.is_string() ? mode.get<std::string>() : "");
    }
    claims.push_back(std::move(claim));
  }
  std::sort(claims.begin(), claims.end(),
            [](const Claim& a, const Claim& b) { return a.name < b.name; });
  return claims;
}

} // namespace dtrain::kubernetes
