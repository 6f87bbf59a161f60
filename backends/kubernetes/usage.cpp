#include "backends/kubernetes/usage.h"

#include "backends/kubernetes/objects.h"
#include "backends/kubernetes/read_job.h"
#include "backends/kubernetes/status.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<std::string_view, double>, 16> k_suffixes = {{{"", 1},
                                                                             {"n", 1e-9},
                                                                             {"u", 1e-6},
                                                                             {"m", 1e-3},
                                                                             {"k", 1e3},
                                                                             {"M", 1e6},
                                                                             {"G", 1e9},
                                                                             {"T", 1e12},
                                                                             {"P", 1e15},
                                                                             {"E", 1e18},
                                                                             {"Ki", 0x1p10},
                                                                             {"Mi", 0x1p20},
                                                                             {"Gi", 0x1p30},
                                                                             {"Ti", 0x1p40},
                                                                             {"Pi", 0x1p50},
                                                                             {"Ei", 0x1p60}}};

constexpr double k_most_memory = 0x1p62;

/// All containers together.
double sum_of(const json& metrics, std::string_view path) {
  double sum = 0;
  for (const json& container : member(metrics, "containers")) {
    sum += quantity_of(text_at(container, path)).value_or(0);
  }
  return sum;
}

} // namespace

std::optional<double> quantity_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) {
    return std::nullopt;
  }
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [suffix, factor] : k_suffixes) {
    if (rest == suffix) {
      return number * factor;
    }
  }
  return std::nullopt;
}

std::vector<InstanceUsage> instance_usage(ApiClient& api, const JobRef& job) {
  const JobObjects objects = read_objects(api, job);
  const ApiResult metrics = api.call(api.request(
      "GET", collection_path("/apis/metrics.k8s.io/v1beta1", job.namespace_name, "pods"),
      {{"labelSelector", selector_of(job.name)}}));
  if (metrics.status == k_not_found || metrics.status == k_unavailable) {
    throw EngineError("the cluster has no metrics API (metrics.k8s.io), which says what Pods use: "
                      "have metrics-server installed");
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
