#include "backends/kubernetes/objects/jobset.h"

#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/objects/gang_api.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/own_fields.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_replicated_job_label = "jobset.sigs.k8s.io/replicatedjob-name";

std::string role_of(const json& job) {
  const std::string role = label(job, k_role_label);
  return role.empty() ? k_worker_role : role;
}

/// The set's conditions as a Job has them. A Job's own failure is not the set's, which may have
/// attempts left.
json conditions_of(const json& set) {
  auto conditions = json::array();
  for (json entry : member(set, "status/conditions")) {
    const std::string type = text_at(entry, "type");
    if (type == "Completed" || type == "Failed") {
      entry["type"] = type == "Completed" ? "Complete" : type;
      conditions.push_back(std::move(entry));
    }
  }
  return conditions;
}

} // namespace

bool has_jobset(const JobSpec& job) { return own::api(job) == "jobset" || is_trainjob(job); }

json jobset_of(const JobSpec& job, const std::vector<json>& jobs) {
  json set = {{"apiVersion", fmt::format("{}/{}", k_jobset_group, k_jobset_version)},
              {"kind", "JobSet"},
              {"metadata", jobs.at(0)["metadata"]}};
  set["metadata"]["name"] = job.name;
  if (in_kueue(job)) {
    set["metadata"]["labels"][k_queue_label] = job.queue;
    set["spec"]["suspend"] = true; // Kueue resumes it.
  }
  json& spec = set["spec"];
  if (jobs.at(0)["spec"].contains("ttlSecondsAfterFinished")) {
    spec["ttlSecondsAfterFinished"] = jobs[0]["spec"]["ttlSecondsAfterFinished"];
  }
  spec["network"]["enableDNSHostnames"] = false; // The Service is dtrain's own.
  spec["failurePolicy"]["maxRestarts"] = job.max_restarts;
  auto decide = json::array();
  for (const json& each : jobs) {
    const bool leads = is_lead_role(role_of(each));
    const bool with_others = !annotation(each, k_success_annotation).empty();
    if (leads && !with_others) {
      decide = json::array({role_of(each)});
      break;
    }
    if (with_others || role_of(each) == k_worker_role) {
      decide.push_back(role_of(each));
    }
  }
  spec["successPolicy"] = {{"operator", "All"}, {"targetReplicatedJobs", decide}};
  for (const json& each : jobs) {
    json part = {{"metadata", each["metadata"]}, {"spec", each["spec"]}};
    part["metadata"].erase("name");
    part["metadata"].erase("namespace");
    part["spec"].erase("ttlSecondsAfterFinished");
    spec["replicatedJobs"].push_back(
        {{"name", role_of(each)}, {"replicas", 1}, {"template", std::move(part)}});
  }
  return set;
}

json job_in_set(const json& set, std::string_view role, const std::vector<ObjectPtr>& jobs) {
  json job;
  for (const json& each : member(set, "spec/replicatedJobs")) {
    if (text_at(each, "name") == role) {
      job = member(each, "template");
      job["metadata"]["uid"] = "";
    }
  }
  if (job.is_null()) {
    return job;
  }
  std::string created;
  for (const ObjectPtr& each : jobs) {
    const std::string at = text_at(*each, "metadata/creationTimestamp");
    if (label(*each, k_jobset_uid_label) == text_at(set, "metadata/uid") &&
        label(*each, k_replicated_job_label) == role && at >= created &&
        !member(*each, "metadata").contains("deletionTimestamp")) {
      job = *each;
      created = at;
    }
  }
  for (const char* key : {"name", "namespace", "creationTimestamp"}) {
    job["metadata"][key] = text_at(set, fmt::format("metadata/{}", key));
  }
  job["metadata"]["labels"] = member(set, "metadata/labels");
  const json& suspend = member(set, "spec/suspend");
  job["spec"]["suspend"] = suspend.is_boolean() && suspend.get<bool>();
  json& status = job["status"];
  status["restarts"] = number_at(set, "status/restarts");
  status["conditions"] = conditions_of(set);
  status.erase("completionTime");
  for (const json& entry : status["conditions"]) {
    if (text_at(entry, "type") == "Complete") {
      status["completionTime"] = text_at(entry, "lastTransitionTime");
    }
  }
  return job;
}

std::string lead_role(const json& set) {
  for (const json& each : member(set, "spec/replicatedJobs")) {
    if (std::string role = text_at(each, "name"); is_lead_role(role)) {
      return role;
    }
  }
  return {};
}

std::vector<json> others_in_set(const json& set, const std::vector<ObjectPtr>& jobs) {
  std::vector<json> others;
  for (const json& each : member(set, "spec/replicatedJobs")) {
    const std::string role = text_at(each, "name");
    if (role != k_worker_role && !is_lead_role(role)) {
      others.push_back(job_in_set(set, role, jobs));
    }
  }
  return others;
}

std::string jobsets_path(std::string_view namespace_name) {
  return collection_path(fmt::format("/apis/{}/{}", k_jobset_group, k_jobset_version),
                         namespace_name, "jobsets");
}

std::string jobset_path(const JobRef& job) {
  return fmt::format("{}/{}", jobsets_path(job.namespace_name), escape_url(job.name));
}

} // namespace dtrain::kubernetes
