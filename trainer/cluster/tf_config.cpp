#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "submit/errors.h"
#include "trainer/cluster/cluster.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

using nlohmann::json;

constexpr std::array<const char*, 4> k_types = {"chief", "worker", "ps", "evaluator"};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw ClusterError("TF_CONFIG: " + fmt::format(text, std::forward<Args>(args)...));
}

json parse_json(const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) { // A number beyond double is no parse_error.
    const std::string what = error.what();
    const std::size_t start = what.find("] ");
    fail("not JSON: {}",
         dtrain::printable(start == std::string::npos ? what : what.substr(start + 2)));
  }
}

bool is_type(const std::string& type) {
  return std::find(k_types.begin(), k_types.end(), type) != k_types.end();
}

void check_address(const std::string& key, const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const char* end = address.data() + address.size();
  int port = 0;
  const bool has_host = colon != std::string::npos && colon > 0;
  const auto [stop, error] =
      std::from_chars(has_host ? address.data() + colon + 1 : end, end, port);
  if (!has_host || error != std::errc() || stop != end || port < 1 || port > 65535) {
    fail("{}: '{}' is not host:port", key, dtrain::printable(address));
  }
}

TfConfig::Job parse_job(const std::string& type, const json& addresses) {
  if (!is_type(type)) {
    fail("cluster.{}: no such task type; types are {}", dtrain::printable(type),
         fmt::join(k_types, ", "));
  }
  if (!addresses.is_array() || addresses.empty()) {
    fail("cluster.{}: must be a list of host:port", type);
  }
  TfConfig::Job job{type, {}};
  for (const json& address : addresses) {
    const std::string key = fmt::format("cluster.{}[{}]", type, job.addresses.size());
    if (!address.is_string()) {
      fail("{}: must be a string, host:port", key);
    }
    check_address(key, address.get_ref<const std::string&>());
    job.addresses.push_back(address.get<std::string>());
  }
  if (job.addresses.size() > 1 && (type == "chief" || type == "evaluator")) {
    fail("cluster.{}: has {} tasks; there can be only one", type, job.addresses.size());
  }
  return job;
}

void check_unique(const std::vector<TfConfig::Job>& cluster) {
  std::map<std::string, std::string> seen;
  for (const TfConfig::Job& job : cluster) {
    for (std::size_t i = 0; i < job.addresses.size(); ++i) {
      const std::string key = fmt::format("cluster.{}[{}]", job.type, i);
      const auto [it, fresh] = seen.emplace(job.addresses[i], key);
      if (!fresh) {
        fail("{} and {} have the same address {}; give every task its own", it->second, key,
             dtrain::printable(job.addresses[i]));
      }
    }
  }
}

void parse_task(const json& task, TfConfig& config) {
  if (!task.is_object() || !task.contains("type") || !task.contains("index")) {
    fail("task: must be {{\"type\": …, \"index\": …}}");
  }
  const json& type = task["type"];
  const json& index = task["index"];
  if (!type.is_string() || !index.is_number_integer()) {
    fail("task: type must be a string and index a whole number");
  }
  config.task_type = type.get<std::string>();
  const auto job = std::find_if(config.cluster.begin(), config.cluster.end(),
                                [&](const TfConfig::Job& j) { return j.type == config.task_type; });
  if (!is_type(config.task_type)) {
    fail("task.type: no such type '{}'; types are {}", dtrain::printable(config.task_type),
         fmt::join(k_types, ", "));
  }
  // The evaluator need not be listed: it is outside the cluster.
  const std::size_t count = job == config.cluster.end() ? 0 : job->addresses.size();
  if (count == 0 && config.task_type != "evaluator") {
    fail("task.type: '{}', but the cluster has none", config.task_type);
  }
  const std::size_t limit = std::max<std::size_t>(count, 1);
  const bool negative = index.is_number_integer() && !index.is_number_unsigned();
  if (negative || index.get<std::uint64_t>() >= limit) {
    fail("task.index: {} is out of range, cluster.{} has {} {} (0 to {})", index.dump(),
         config.task_type, limit, limit == 1 ? "address" : "addresses", limit - 1);
  }
  config.task_index = index.get<int>();
}

} // namespace

TfConfig parse_tf_config(const std::string& text) {
  const json root = parse_json(text);
  if (!root.is_object()) {
    fail("must be a JSON object");
  }
  TfConfig config;
  const auto cluster = root.find("cluster");
  if (cluster == root.end() || cluster->empty()) {
    return config;
  }
  if (!cluster->is_object()) {
    fail("cluster: must be an object of task types");
  }
  for (const auto& [type, addresses] : cluster->items()) {
    config.cluster.push_back(parse_job(type, addresses));
  }
  const auto order = [](const TfConfig::Job& job) {
    return std::find(k_types.begin(), k_types.end(), job.type);
  };
  std::sort(config.cluster.begin(), config.cluster.end(),
            [&](const auto& a, const auto& b) { return order(a) < order(b); });
  check_unique(config.cluster);
  const auto task = root.find("task");
  if (task == root.end()) {
    fail("task: is missing; it says which task of the cluster this process is");
  }
  parse_task(*task, config);
  return config;
}

} // namespace trainer
