#include "backends/kubernetes/status/usage.h"

#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/status/status.h"
#include "submit/errors.h"
#include "submit/text/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr double k_most_memory = 0x1p62;

/// Of all containers together.
double sum_of(const json& metrics, std::string_view path) {
  double sum = 0;
  for (const json& container : member(metrics, "containers")) {
    sum += quantity_of(text_at(container, path)).value_or(0);
  }
  return sum;
}

} // namespace

std::vector<InstanceUsage> instance_usage(ApiClient& api, const JobRef& job) {
  const JobObjects objects = read_objects(api, job);
  const ApiResult metrics = api.call(api.request(
      "GET", collection_path("/apis/metrics.k8s.io/v1beta1", job.namespace_name, "pods"),
      {{"labelSelector", selector_of(job.name)}}));
  if (metrics.status == k_not_found || metrics.status == k_unavailable) {
    throw EngineError("the cluster has no metrics API (metrics.k8s.io); install metrics-server");
  }
  if (!metrics.ok()) {
    api.fail(metrics);
  }
  std::map<std::string, const json*> by_pod;
  for (const json& each : member(metrics.body, "items")) {
    by_pod[text_at(each, "metadata/name")] = &each;
  }
  std::vector<InstanceUsage> usage;
  const std::vector<InstanceStatus> instances = status_of(objects).instances;
  const std::vector<const json*> pods = latest_pods(objects);
  for (std::size_t i = 0; i < instances.size(); ++i) {
    const json* pod = pods.at(i);
    const auto measured = by_pod.find(pod == nullptr ? "" : text_at(*pod, "metadata/name"));
    if (measured == by_pod.end()) {
      continue;
    }
    usage.push_back({.instance = instances[i].name,
                     .node = text_at(*pod, "spec/nodeName"),
                     .cpus = sum_of(*measured->second, "usage/cpu"),
                     .memory = static_cast<std::int64_t>(
                         std::min(sum_of(*measured->second, "usage/memory"), k_most_memory)),
                     .gpus = gpus_of(member(*pod, "spec"))});
  }
  return usage;
}

} // namespace dtrain::kubernetes
