#include "backends/kubernetes/cluster/inventory.h"

#include "backends/kubernetes/objects/objects.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::string_view k_role_prefix = "node-role.kubernetes.io/";

std::string node_role_of(const json& node) {
  std::string roles;
  for (const auto& [key, value] : member(node, "metadata/labels").items()) {
    if (key.starts_with(k_role_prefix)) {
      roles += (roles.empty() ? "" : ",") + key.substr(k_role_prefix.size());
    }
  }
  return roles;
}

std::string address_of(const json& node) {
  for (const json& address : member(node, "status/addresses")) {
    if (address.value("type", "") == "InternalIP") {
      return address.value("address", "");
    }
  }
  return {};
}

/// Keyed by node. Without the right to see all Pods, counts those of its own namespace, and says so
/// in `unseen`.
std::map<std::string, int> requested_gpus(ApiClient& api, std::string& unseen) {
  const Query running = {
      {"fieldSelector", "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="}};
  std::vector<json> pods;
  try {
    pods = api.list(pods_path(""), running).items;
  } catch (const Forbidden&) {
    const std::string& own = api.access().namespace_name;
    unseen = fmt::format("no permission to list Pods of all namespaces (`list` on pods): only GPUs "
                         "requested in namespace {} are counted",
                         own);
    pods = api.list(pods_path(own), running).items;
  }
  std::map<std::string, int> requested;
  for (const json& pod : pods) {
    requested[text_at(pod, "spec/nodeName")] += gpus_of(member(pod, "spec"));
  }
  return requested;
}

} // namespace

int allocatable_gpus(const json& node) {
  const json& values = member(node, "status/allocatable");
  int count = 0;
  if (values.is_object() && values.contains(k_gpu_resource)) {
    const std::string text = values.value(k_gpu_resource, "");
    std::from_chars(text.data(), text.data() + text.size(), count);
  }
  return count;
}

std::vector<NodeStatus> list_nodes(ApiClient& api) {
  std::string unseen;
  const std::map<std::string, int> requested = requested_gpus(api, unseen);
  const auto requested_of = [&](const std::string& name) {
    const auto found = requested.find(name);
    return found == requested.end() ? 0 : found->second;
  };
  std::vector<NodeStatus> nodes;
  std::vector<json> found;
  try {
    found = api.list("/api/v1/nodes").items;
  } catch (const Forbidden&) {
    if (requested.empty()) {
      throw;
    }
    for (const auto& [name, gpus] : requested) {
      NodeStatus& node = nodes.emplace_back();
      node.name = name;
      node.status = "Unknown";
      node.gpus_requested = gpus;
      node.unseen = "no permission to list nodes and their GPUs (`list` on nodes): only the nodes "
                    "of visible Pods are shown";
    }
  }
  for (const json& node : found) {
    NodeStatus status;
    status.name = text_at(node, "metadata/name");
    status.address = address_of(node);
    status.role = node_role_of(node);
    status.status = has_condition(node, "Ready") ? "Ready" : "NotReady";
    const json& cordoned = member(node, "spec/unschedulable");
    if (cordoned.is_boolean() && cordoned.get<bool>()) {
      status.status += ",SchedulingDisabled";
    }
    status.gpus = allocatable_gpus(node);
    status.gpus_requested = requested_of(status.name);
    status.unseen = unseen;
    nodes.push_back(std::move(status));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NodeStatus& a, const NodeStatus& b) { return a.name < b.name; });
  return nodes;
}

std::vector<Claim> list_claims(ApiClient& api, const std::string& namespace_name) {
  std::vector<Claim> claims;
  const std::string where =
      namespace_name.empty() ? "" : "/namespaces/" + escape_url(namespace_name);
  for (const json& object :
       api.list(fmt::format("/api/v1{}/persistentvolumeclaims", where)).items) {
    Claim claim;
    claim.namespace_name = text_at(object, "metadata/namespace");
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
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
    return std::tie(a.namespace_name, a.name) < std::tie(b.namespace_name, b.name);
  });
  return claims;
}

} // namespace dtrain::kubernetes
