#include "backends/kubernetes/cluster/check.h"

#include "backends/kubernetes/cluster/inventory.h"
#include "backends/kubernetes/objects/objects.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;
using Level = CheckResult::Level;

struct Need {
  const char* verb;
  const char* group;
  const char* resource;
  const char* subresource;
};

/// Rights that dtrain needs in a namespace: the smallest Role.
constexpr std::array<Need, 11> k_needs = {{{"create", "batch", "jobs", ""},
                                           {"patch", "batch", "jobs", ""},
                                           {"delete", "batch", "jobs", ""},
                                           {"list", "batch", "jobs", ""},
                                           {"watch", "batch", "jobs", ""},
                                           {"create", "", "services", ""},
                                           {"create", "", "configmaps", ""},
                                           {"create", "", "secrets", ""},
                                           {"list", "", "pods", ""},
                                           {"watch", "", "pods", ""},
                                           {"get", "", "pods", "log"}}};

HttpRequest may(ApiClient& api, const Need& need) {
  json attributes = {{"namespace", api.access().namespace_name},
                     {"verb", need.verb},
                     {"group", need.group},
                     {"resource", need.resource}};
  if (need.subresource[0] != '\0') {
    attributes["subresource"] = need.subresource;
  }
  return api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {},
                     {{"apiVersion", "authorization.k8s.io/v1"},
                      {"kind", "SelfSubjectAccessReview"},
                      {"spec", {{"resourceAttributes", attributes}}}});
}

CheckResult check_nodes(const ApiResult& nodes) {
  if (!nodes.ok()) {
    return {Level::warning, "nodes", "no permission to list nodes, so GPUs are not counted"};
  }
  std::int64_t gpus = 0;
  std::size_t ready = 0;
  const json& items = nodes.body["items"];
  for (const json& node : items) {
    gpus += allocatable_gpus(node);
    ready += has_condition(node, "Ready") ? 1 : 0;
  }
  return {ready == 0 ? Level::error : Level::ok, "nodes",
          fmt::format("{} of {} ready, {} GPUs", ready, items.size(), gpus)};
}

} // namespace

std::vector<CheckResult> check_cluster(ApiClient& api) {
  std::vector<CheckResult> results;
  std::vector<HttpRequest> requests = {api.request("GET", "/version"),
                                       api.request("GET", "/api/v1/nodes", {{"limit", "500"}})};
  for (const Need& need : k_needs) {
    requests.push_back(may(api, need));
  }
  std::vector<ApiResult> answers = api.call_all(std::move(requests));
  results.push_back(
      {answers[0].ok() ? Level::ok : Level::error, "cluster",
       answers[0].ok()
           ? fmt::format("{} at {}", text_at(answers[0].body, "gitVersion"), api.where())
           : answers[0].message()});
  results.push_back(check_nodes(answers[1]));
  std::vector<std::string> refused;
  for (std::size_t i = 0; i < k_needs.size(); ++i) {
    const json& allowed = member(answers[i + 2].body, "status/allowed");
    if (!allowed.is_boolean() || !allowed.get<bool>()) {
      const Need& need = k_needs[i];
      refused.push_back(fmt::format("{} {}{}{}", need.verb, need.resource,
                                    need.subresource[0] == '\0' ? "" : "/", need.subresource));
    }
  }
  results.push_back({refused.empty() ? Level::ok : Level::error,
                     fmt::format("rights in namespace {}", api.access().namespace_name),
                     refused.empty() ? "all that dtrain needs"
                                     : fmt::format("missing: {}", fmt::join(refused, ", "))});
  return results;
}

} // namespace dtrain::kubernetes
