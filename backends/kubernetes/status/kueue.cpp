#include "backends/kubernetes/status/kueue.h"

#include "backends/kubernetes/objects/trainjob.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_version = "v1beta1";
constexpr const char* k_uid_label = "kueue.x-k8s.io/job-uid";
constexpr std::chrono::seconds k_longest_for_workload{10};
constexpr std::chrono::milliseconds k_between_looks{100};

/// The objects that Kueue treats as one workload: the owner of the rest, or a launcher's Job.
std::vector<std::string> uids_of(const JobObjects& objects) {
  if (!objects.set.is_null()) {
    return {text_at(objects.set, is_of_trainjob(objects.set) ? "metadata/ownerReferences/0/uid"
                                                             : "metadata/uid")};
  }
  std::vector<std::string> uids = {text_at(objects.job, "metadata/uid")};
  if (!objects.lead.is_null()) {
    uids.push_back(text_at(objects.lead, "metadata/uid"));
  }
  return uids;
}

bool is_inactive(const json& workload) {
  const json& active = member(workload, "spec/active");
  return active.is_boolean() && !active.get<bool>();
}

/// The first Workload that keeps the job waiting; null if none is known to.
const json& waiting_one(const JobObjects& objects) {
  static const json k_null;
  for (const ObjectPtr& workload : objects.workloads) {
    if (is_inactive(*workload) || !has_condition(*workload, "Admitted")) {
      return *workload;
    }
  }
  return k_null;
}

std::string position_of(const JobObjects& objects, const json& workload) {
  for (const json& each : objects.positions) {
    if (text_at(each, "metadata/name") == text_at(workload, "metadata/name")) {
      const std::int64_t own = number_at(each, "positionInLocalQueue");
      const std::int64_t all = number_at(each, "positionInClusterQueue");
      return fmt::format(", position {}", own + 1) +
             (all == own ? "" : fmt::format(" ({} among the queues of its quota)", all + 1));
    }
  }
  return {};
}

/// Kueue's message: why there is no quota, or what it checks although there is.
std::string wait_of(const json& workload) {
  const json& reserved = condition(workload, "QuotaReserved");
  if (text_at(reserved, "status") != "True") {
    return text_at(reserved, "message");
  }
  for (const json& check : member(workload, "status/admissionChecks")) {
    if (text_at(check, "state") != "Ready") {
      return fmt::format("it has quota, and waits for the admission check {}{}{}",
                         text_at(check, "name"), text_at(check, "message").empty() ? "" : ": ",
                         text_at(check, "message"));
    }
  }
  return {};
}

} // namespace

bool is_in_queue(const json& root) {
  return !label(root, k_queue_label).empty() || !annotation(root, k_queue_annotation).empty();
}

std::string queue_of(const JobObjects& objects) {
  const json& root = objects.set.is_null() ? objects.job : objects.set;
  const std::string queue = label(root, k_queue_label);
  return queue.empty() ? annotation(root, k_queue_annotation) : queue;
}

bool wants_queue(const JobObjects& objects) {
  return (is_suspended(objects.job) || is_suspended(objects.lead)) && !queue_of(objects).empty() &&
         !is_final(summarize(objects).phase);
}

std::string workloads_path(std::string_view namespace_name) {
  return collection_path(fmt::format("/apis/{}/{}", k_kueue_group, k_version), namespace_name,
                         "workloads");
}

Query workloads_query(const JobObjects& objects) {
  return {
      {"labelSelector", fmt::format("{} in ({})", k_uid_label, fmt::join(uids_of(objects), ","))}};
}

void read_queue(ApiClient& api, JobObjects& objects) {
  const std::string where = text_at(objects.job, "metadata/namespace");
  std::vector<ApiResult> results = api.call_all(
      {api.request("GET", workloads_path(where), workloads_query(objects)),
       api.request("GET", fmt::format("/apis/visibility.{}/{}/namespaces/{}/localqueues/{}/"
                                      "pendingworkloads",
                                      k_kueue_group, k_version, escape_url(where),
                                      escape_url(queue_of(objects))))});
  if (results[0].ok()) {
    for (json& workload : results[0].body["items"]) {
      objects.workloads.push_back(std::make_shared<json>(std::move(workload)));
    }
  }
  if (results[1].ok()) {
    for (json& position : results[1].body["items"]) {
      objects.positions.push_back(std::move(position));
    }
  }
}

std::string why_suspended(const JobObjects& objects) {
  const std::string queue = queue_of(objects);
  if (queue.empty()) {
    return k_suspended;
  }
  const json& workload = waiting_one(objects);
  if (is_inactive(workload)) {
    const json& evicted = condition(workload, "Evicted");
    const bool by_kueue = text_at(evicted, "reason").starts_with("DeactivatedDueTo");
    return by_kueue ? "suspended by Kueue: " + text_at(evicted, "message") : k_suspended;
  }
  const std::string wait = wait_of(workload);
  return fmt::format("waiting for its turn in the queue {}{}{}{}", queue,
                     position_of(objects, workload), wait.empty() ? "" : ": ", wait);
}

void set_active(ApiClient& api, const JobObjects& objects, bool active) {
  const std::string path = workloads_path(text_at(objects.job, "metadata/namespace"));
  const std::size_t count = uids_of(objects).size();
  const auto until = std::chrono::steady_clock::now() + k_longest_for_workload;
  json workloads;
  for (;;) { // Kueue creates them in its own time; suspending earlier would start the job later.
    workloads = api.must(api.request("GET", path, workloads_query(objects)))["items"];
    if (workloads.size() >= count) {
      break;
    }
    if (std::chrono::steady_clock::now() > until) {
      throw EngineError(fmt::format("job {} is in the queue {}, but Kueue has created no Workload "
                                    "for it in {} s; check that its controller runs",
                                    label(objects.job, k_job_label), queue_of(objects),
                                    k_longest_for_workload.count()));
    }
    std::this_thread::sleep_for(k_between_looks);
  }
  for (const json& workload : workloads) {
    api.must(api.merge(fmt::format("{}/{}", path, escape_url(text_at(workload, "metadata/name"))),
                       {{"spec", {{"active", active}}}}));
  }
}

} // namespace dtrain::kubernetes
