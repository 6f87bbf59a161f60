#include "backends/kubernetes/render/render.h"

#include "backends/kubernetes/connect/tensorboard.h"
#include "backends/kubernetes/objects/gang_api.h"
#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/objects/yaml_json.h"
#include "backends/kubernetes/own_fields.h"
#include "backends/kubernetes/render/job_data.h"
#include "backends/kubernetes/render/scripts.h"
#include "backends/kubernetes/render/template_data.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cctype>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::size_t k_longest_host_name = 63;

void check_names(const JobSpec& job, const RoleGroup& group) {
  if (group.roles[0].image.empty()) {
    throw UsageError("--image is needed on Kubernetes: the container image that the ranks run in");
  }
  std::string last = instance_name(pod_owner_name(job, group.name), instances_of(group.roles) - 1);
  if (last.size() > k_longest_host_name) {
    throw UsageError(fmt::format("--name={}: use at most {} characters with {} Pods on Kubernetes, "
                                 "so that the host name {} fits into {}",
                                 job.name, k_longest_host_name - (last.size() - job.name.size()),
                                 instances_of(group.roles), last, k_longest_host_name));
  }
  if (std::isdigit(static_cast<unsigned char>(job.name[0])) != 0) {
    throw UsageError(fmt::format(
        "--name={}: must begin with a letter on Kubernetes, as a Service's name must", job.name));
  }
}

void check_min_available(const JobSpec& job, int instances) {
  const JobType& type = *find_job_type(job.type);
  if (own::min_available(job) != 1 && !type.has_tasks) {
    throw UsageError(fmt::format("--min-available: is for a volcanojob, not for a {}",
                                 type.name.empty() ? "job without a type" : type.name));
  }
  if (own::min_available(job) > instances) {
    throw UsageError(fmt::format("--min-available={}: the tasks have {} instances",
                                 own::min_available(job), instances));
  }
}

json secret_data(const JobSpec& job, const json& names,
                 const std::map<std::string, std::string>& shown) {
  json data = names;
  data["hidden"] = k_hidden;
  data["launcher"] = has_launcher(job);
  data["secrets"] = json::array();
  for (const auto& [key, text] : shown) {
    data["secrets"].push_back({{"key", key}, {"shown", text}});
  }
  return data;
}

json group_data(const JobSpec& job, const json& names, int instances) {
  json data = names;
  data["volcano"] = gang_api(job) == GangApi::volcano;
  data["coscheduling"] = gang_api(job) == GangApi::coscheduling;
  data["members"] = gang_members(job, instances);
  data["queue"] = section(!job.queue.empty(), {{"queue_name", job.queue}});
  data["priority"] = section(!job.priority.empty(), {{"priority_name", job.priority}});
  return data;
}

/// The Jobs of these documents in a JobSet, or what makes one, as JSON, which is YAML.
void add_set(const JobSpec& job, const std::vector<Plan::Document>& documents, Plan& plan) {
  std::vector<json> jobs;
  jobs.reserve(documents.size());
  for (const Plan::Document& document : documents) {
    jobs.push_back(yaml_documents(document.text, document.name).at(0));
  }
  const auto add = [&](const char* name, const json& object) {
    constexpr int k_indent = 2;
    plan.documents.push_back({name, object.dump(k_indent) + "\n"});
  };
  const json set = jobset_of(job, jobs);
  if (is_trainjob(job)) {
    if (job.ttl_after_finished_ms >= 0) {
      throw UsageError("--ttl-after-finished: a TrainJob does not support it; use --api=jobset, or "
                       "`dtrain prune`");
    }
    add("trainjob.json", trainjob_of(set));
    add("trainingruntime.json", training_runtime_of(set));
  } else {
    add("jobset.json", set);
  }
}

} // namespace

Plan render_plan(const JobSpec& job, const Templates& templates, const JobSecrets& secrets) {
  if (job.clean_task_policy == "None") {
    throw UsageError(
        "--clean-task-policy=None: Kubernetes ends all Pods of a Job with it; drop it");
  }
  const std::vector<RoleGroup> groups = role_groups(job);
  for (const RoleGroup& group : groups) {
    check_names(job, group);
  }
  if (groups.size() > 1 && !has_launcher(job) && in_kueue(job) && !has_jobset(job)) {
    throw UsageError(fmt::format(
        "--queue={}: {} requests other resources than the workers and is a Job of its own, which "
        "Kueue would admit separately; add --api=jobset, which it admits as a whole",
        job.queue, groups[groups[0].name == k_worker_role ? 1 : 0].name));
  }
  Plan plan;
  plan.job = job;
  plan.templates = templates;
  plan.secret_env = secrets.env;
  if (job.clean_task_policy == "All") {
    plan.notices.emplace_back("--clean-task-policy=All: ended Pods stay, with their logs, until "
                              "the Job is deleted (--ttl-after-finished)");
  }
  auto add = [&](const char* name, const json& data) {
    plan.documents.push_back({name, render_document(templates, name, data)});
  };
  json names = {{"name", job.name},
                {"namespace", job.namespace_name},
                {"job_object", role_job_name(job.name, k_worker_role)},
                {"at_once", job.role_sequence.empty()}};
  std::vector<Plan::Document> jobs;
  int instances = 0;
  for (const RoleGroup& group : groups) {
    const bool owns_rest = group.name == k_worker_role;
    jobs.insert(owns_rest ? jobs.begin() : jobs.end(),
                {owns_rest ? k_job_document : group.name + ".yaml",
                 render_document(templates, k_job_document, job_data(job, group, secrets))});
    instances += instances_of(group.roles);
  }
  check_min_available(job, instances);
  if (has_jobset(job)) {
    add_set(job, jobs, plan);
  } else {
    plan.documents.push_back(jobs[0]);
  }
  add("service.yaml", names);
  add(k_config_document, config_data(job, templates));
  add(k_secret_document, secret_data(job, names, shown_contents(job, secrets)));
  if (gang_api(job) != GangApi::none) {
    add(k_group_document, group_data(job, names, instances));
  }
  if (!has_jobset(job)) {
    plan.documents.insert(plan.documents.end(), jobs.begin() + 1, jobs.end());
  }
  if (job.tensorboard) {
    add_board(job, templates, plan);
  }
  return plan;
}

} // namespace dtrain::kubernetes
