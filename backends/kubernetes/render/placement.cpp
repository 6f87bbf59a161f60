#include "backends/kubernetes/render/placement.h"

#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/own_fields.h"
#include "backends/kubernetes/render/template_data.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_gpu_type_label = "nvidia.com/gpu.product";
constexpr const char* k_rdma_resource = "rdma/hca"; ///< The shared device plug-in's, and Arena's.
constexpr const char* k_host_label = "kubernetes.io/hostname";
constexpr const char* k_spread_node = "node"; ///< No label: the node itself.

json toleration(const std::string& text) {
  static const std::array<std::string, 3> k_effects = {"NoSchedule", "PreferNoSchedule",
                                                       "NoExecute"};
  if (text == "all") {
    return {{"key", ""},
            {"operator", "Exists"},
            {"value", section(false, {})},
            {"effect", section(false, {})}};
  }
  std::size_t colon = text.rfind(':');
  std::string effect = colon == std::string::npos ? "" : text.substr(colon + 1);
  for (const char* operator_name : {",Equal", ",Exists"}) { // Arena's form, which needs none.
    if (effect.ends_with(operator_name)) {
      effect.resize(effect.size() - std::string_view(operator_name).size());
    }
  }
  std::string taint = text.substr(0, colon);
  if (taint.empty() || (colon != std::string::npos &&
                        std::find(k_effects.begin(), k_effects.end(), effect) == k_effects.end())) {
    throw UsageError(fmt::format("--toleration={}: must be KEY[=VALUE][:EFFECT], EFFECT one of "
                                 "NoSchedule, PreferNoSchedule, NoExecute",
                                 printable(text)));
  }
  std::size_t equals = taint.find('=');
  bool has_value = equals != std::string::npos;
  return {{"key", taint.substr(0, equals)},
          {"operator", has_value ? "Equal" : "Exists"},
          {"value", section(has_value, {{"text", has_value ? taint.substr(equals + 1) : ""}})},
          {"effect", section(!effect.empty(), {{"text", effect}})}};
}

/// Parses "KEY[:required]".
json spread(const std::string& text) {
  constexpr std::string_view k_required = ":required";
  const bool required = text.ends_with(k_required);
  std::string key = text.substr(0, text.size() - (required ? k_required.size() : 0));
  if (key == k_spread_node) {
    key = k_host_label;
  }
  if (key.empty() || key.find(':') != std::string::npos) {
    throw UsageError(fmt::format(
        "--topology-spread={}: must be KEY[:required], KEY a label of the nodes, or node",
        printable(text)));
  }
  return {{"key", key}, {"otherwise", required ? "DoNotSchedule" : "ScheduleAnyway"}};
}

/// The placement of workers relative to one another. A launcher computes nothing and may be
/// anywhere.
void add_topology(const JobSpec& job, bool launcher, json& data) {
  data["spreads"] = json::array();
  for (const std::string& text : own::topology_spread(job)) {
    json each = spread(text);
    if (own::binpack(job) && each["key"] == k_host_label) {
      throw UsageError(fmt::format(
          "--binpack: puts the workers on few nodes, and --topology-spread={} on many; give one",
          printable(text)));
    }
    if (!launcher) {
      data["spreads"].push_back(std::move(each));
    }
  }
  data["binpack"] = own::binpack(job) && !launcher;
}

/// The resources of each instance: if only one of request and limit is given, it is both.
void add_resources(const JobSpec& job, const PodRole& role, json& data) {
  data["limits"] = json::array();
  data["requests"] = json::array();
  if (role.gpus > 0) {
    data["limits"].push_back({{"key", k_gpu_resource}, {"value", std::to_string(role.gpus)}});
  }
  for (const std::string& device : own::devices(job)) {
    auto [key, value] = key_value(device, "--device");
    data["limits"].push_back({{"key", key}, {"value", value}});
  }
  const bool has_rdma = job.rdma && role.name != k_launcher;
  if (has_rdma) {
    data["limits"].push_back({{"key", k_rdma_resource}, {"value", "1"}});
  }
  data["locks_memory"] = has_rdma;
  // The init container that brings the code has the limits of its rank: a quota that demands limits
  // demands them of it, too, and the Pod requests no more.
  data["code_limits"] = json::array();
  data["code_requests"] = json::array();
  const auto add = [&](const char* key, const std::string& request, const std::string& limit) {
    const std::string& most = limit.empty() ? request : limit;
    for (const char* list : {"limits", "code_limits"}) {
      if (!most.empty()) {
        data[list].push_back({{"key", key}, {"value", most}});
      }
    }
    for (const char* list : {"requests", "code_requests"}) {
      if (!request.empty() && !limit.empty()) {
        data[list].push_back({{"key", key}, {"value", request}});
      }
    }
  };
  add("cpu", role.cpu, role.cpu_limit);
  add("memory", role.memory, role.memory_limit);
  data["has_code_limits"] = !data["code_limits"].empty();
  data["has_code_requests"] = !data["code_requests"].empty();
  data["has_limits"] = !data["limits"].empty();
  data["has_requests"] = !data["requests"].empty();
  data["has_resources"] = data["has_limits"].get<bool>() || data["has_requests"].get<bool>();
}

} // namespace

void add_placement(const JobSpec& job, const PodRole& role, json& data) {
  data["scheduler"] = section(!own::scheduler(job).empty(), {{"name", own::scheduler(job)}});
  data["priority"] = section(!job.priority.empty(), {{"name", job.priority}});
  data["nodes"] = json::array();
  for (const std::string& node : job.node_list) {
    data["nodes"].push_back({{"node", node}});
  }
  data["selectors"] = pairs(role.selectors, "--selector");
  if (!own::gpu_type(job).empty()) {
    data["selectors"].push_back({{"key", k_gpu_type_label}, {"value", own::gpu_type(job)}});
  }
  data["tolerations"] = json::array();
  for (const std::string& text : own::tolerations(job)) {
    data["tolerations"].push_back(toleration(text));
  }
  add_topology(job, role.name == k_launcher, data);
  for (const char* list : {"selectors", "nodes", "spreads"}) {
    data[fmt::format("has_{}", list)] = !data[list].empty();
  }
  data["has_affinity"] = !data["nodes"].empty() || data["binpack"].get<bool>();
  add_resources(job, role, data);
}

} // namespace dtrain::kubernetes
