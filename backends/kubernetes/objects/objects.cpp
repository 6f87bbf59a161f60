#include "backends/kubernetes/objects/objects.h"

#include "backends/kubernetes/api/api_client.h"
#include "backends/support/logs/time_text.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <ctime>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

const json& metadata_value(const json& object, const char* map, std::string_view key) {
  static const json k_null;
  const json& values = member(object, map);
  auto found = values.is_object() ? values.find(std::string(key)) : values.end();
  return values.is_object() && found != values.end() ? *found : k_null;
}

/// A decimal number of exactly `text`; false where it is anything else.
bool parse_number(std::string_view text, int& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

} // namespace

std::string collection_path(std::string_view api, std::string_view namespace_name,
                            std::string_view plural) {
  return namespace_name.empty()
             ? fmt::format("{}/{}", api, plural)
             : fmt::format("{}/namespaces/{}/{}", api, escape_url(namespace_name), plural);
}

bool is_lead_role(std::string_view role) {
  return role == k_launcher || role == k_chief || role == k_master;
}

std::string role_job_name(std::string_view job, std::string_view role) {
  return fmt::format("{}-{}", job, role);
}

std::string selector_of(std::string_view job) {
  std::string selector = fmt::format("{}={}", k_manager_label, k_manager);
  return job.empty() ? selector : fmt::format("{},{}={}", selector, k_job_label, job);
}

std::string selector_of(const std::vector<std::string>& jobs) {
  return jobs.size() == 1
             ? selector_of(jobs.front())
             : fmt::format("{},{} in ({})", selector_of(""), k_job_label, fmt::join(jobs, ","));
}

std::string jobs_path(std::string_view namespace_name) {
  return collection_path("/apis/batch/v1", namespace_name, "jobs");
}

std::string job_path(const JobRef& job) {
  return fmt::format("{}/{}", jobs_path(job.namespace_name),
                     escape_url(role_job_name(job.name, k_worker_role)));
}

std::string pods_path(std::string_view namespace_name) {
  return collection_path("/api/v1", namespace_name, "pods");
}

std::string events_path(std::string_view namespace_name) {
  return collection_path("/api/v1", namespace_name, "events");
}

std::string lease_path(std::string_view node) {
  const auto all = collection_path("/apis/coordination.k8s.io/v1", "kube-node-lease", "leases");
  return node.empty() ? all : all + "/" + escape_url(node);
}

const json& member(const json& object, std::string_view path) {
  static const json k_null;
  const json* at = &object;
  while (!path.empty()) {
    std::size_t slash = std::min(path.find('/'), path.size());
    std::string key(path.substr(0, slash));
    path.remove_prefix(std::min(slash + 1, path.size()));
    int index = 0;
    if (at->is_array() && parse_number(key, index) && index >= 0 &&
        static_cast<std::size_t>(index) < at->size()) {
      at = &(*at)[static_cast<std::size_t>(index)];
      continue;
    }
    if (!at->is_object()) {
      return k_null;
    }
    auto found = at->find(key);
    if (found == at->end()) {
      return k_null;
    }
    at = &*found;
  }
  return *at;
}

std::string text_at(const json& object, std::string_view path) {
  const json& value = member(object, path);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::int64_t number_at(const json& object, std::string_view path, std::int64_t fallback) {
  const json& value = member(object, path);
  return value.is_number_integer() ? value.get<std::int64_t>() : fallback;
}

const json& condition(const json& object, std::string_view type) {
  static const json k_null;
  for (const json& entry : member(object, "status/conditions")) {
    if (text_at(entry, "type") == type) {
      return entry;
    }
  }
  return k_null;
}

bool has_condition(const json& object, std::string_view type) {
  return text_at(condition(object, type), "status") == "True";
}

std::string label(const json& object, std::string_view key) {
  const json& value = metadata_value(object, "metadata/labels", key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::string annotation(const json& object, std::string_view key) {
  const json& value = metadata_value(object, "metadata/annotations", key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

Time parse_time(std::string_view text) {
  constexpr std::size_t k_seconds_length = 19; // 2026-01-31T12:34:56
  if (text.size() <= k_seconds_length || text.back() != 'Z') {
    return 0;
  }
  std::string whole(text.substr(0, text.size() - 1));
  if (whole.size() == k_seconds_length) {
    whole += '.';
  }
  whole.resize(k_time_text_size - 1, '0'); // A fraction has any number of digits, or there is none.
  return parse_time_text(whole + 'Z').value_or(0);
}

Time parse_http_date(const std::string& text) {
  std::tm tm{};
  const char* end = strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S gmt", &tm);
  return end == nullptr ? 0 : static_cast<Time>(timegm(&tm)) * k_second;
}

std::string owner_uid(const json& pod) { return label(pod, k_owner_uid_label); }

std::string root_uid(const json& launcher_job) {
  return text_at(launcher_job, "metadata/ownerReferences/0/uid");
}

int index_of(const json& pod) {
  std::string text = label(pod, k_index_label);
  if (text.empty()) {
    text = annotation(pod, k_index_label); // In clusters older than the label.
  }
  int index = -1;
  return parse_number(text, index) ? index : -1;
}

std::string instance_of(const json& object, int index) {
  const std::string roles = annotation(object, k_roles_annotation);
  for (std::string_view rest = roles; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const std::size_t equals = std::min(entry.find('='), entry.size());
    int count = 0;
    if (!parse_number(entry.substr(std::min(equals + 1, entry.size())), count)) {
      break;
    }
    if (index < count || rest.empty()) { // A scaled job has more of the last than it began with.
      return instance_name(entry.substr(0, equals), index);
    }
    index -= count;
  }
  return instance_name(k_worker_role, index);
}

std::string instance_of(const json& pod) { return instance_of(pod, index_of(pod)); }

int gpus_of(const json& pod_spec) {
  int gpus = 0;
  for (const json& container : member(pod_spec, "containers")) {
    const json& limits = member(container, "resources/limits");
    auto found = limits.is_object() ? limits.find(k_gpu_resource) : limits.end();
    if (limits.is_object() && found != limits.end()) {
      int count = 0;
      std::string text = found->is_string() ? found->get<std::string>() : found->dump();
      gpus += parse_number(text, count) ? count : 0;
    }
  }
  return gpus;
}

} // namespace dtrain::kubernetes
