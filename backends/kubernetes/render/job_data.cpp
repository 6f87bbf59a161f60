#include "backends/kubernetes/render/job_data.h"

#include "backends/kubernetes/connect/tensorboard.h"
#include "backends/kubernetes/objects/gang_api.h"
#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/own_fields.h"
#include "backends/kubernetes/render/placement.h"
#include "backends/kubernetes/render/template_data.h"
#include "backends/kubernetes/render/volumes.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr int k_lost_node_seconds = 30;
constexpr int k_milliseconds = 1000;
constexpr const char* k_index_failures =
    "metadata.annotations['batch.kubernetes.io/job-index-failure-count']";
constexpr const char* k_set_restarts = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']";

/// Whole seconds, rounded up, the API's unit.
int seconds(int duration_ms) {
  return duration_ms / k_milliseconds + (duration_ms % k_milliseconds > 0 ? 1 : 0);
}

/// "chief=1,worker=3"
std::string roles_text(const std::vector<PodRole>& roles) {
  std::string text;
  for (const PodRole& role : roles) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", role.name, role.replicas);
  }
  return text;
}

/// The parts that a Job's Pods have in common.
auto asks(const PodRole& role) {
  return std::tie(role.gpus, role.image, role.cpu, role.cpu_limit, role.memory, role.memory_limit,
                  role.selectors, role.annotations);
}

/// Tasks in their order, those that ask for the same together; the first Job owns the others.
std::vector<RoleGroup> task_groups(const std::vector<PodRole>& tasks) {
  std::vector<RoleGroup> groups;
  for (const PodRole& task : tasks) {
    if (groups.empty() || asks(task) != asks(groups.back().roles[0])) {
      groups.push_back({groups.empty() ? k_worker_role : task.name, {}});
    }
    groups.back().roles.push_back(task);
  }
  return groups;
}

/// The places of those on which the job's success hangs, "0-2"; empty: all.
std::string deciding(const JobSpec& job, const std::vector<PodRole>& roles) {
  if (is_decided_by_chief(job) && roles[0].name == job_roles(job)[0].name) {
    return "0";
  }
  const auto ranks =
      std::accumulate(roles.begin(), roles.end(), 0, [](int sum, const PodRole& role) {
        return sum + (role.ranked ? role.replicas : 0);
      });
  return ranks == instances_of(roles) ? "" : ranks == 1 ? "0" : fmt::format("0-{}", ranks - 1);
}

/// An eviction is no failure; else a rank is replaced before its lost node says that it ended.
/// Kubernetes does not combine the two.
bool keeps_from_disruption(const JobSpec& job) { return job.max_restarts == 0 || job.preemptible; }

} // namespace

int instances_of(const std::vector<PodRole>& roles) {
  return std::accumulate(roles.begin(), roles.end(), 0,
                         [](int sum, const PodRole& role) { return sum + role.replicas; });
}

bool has_launcher(const JobSpec& job) { return find_job_type(job.type)->has_launcher; }

std::vector<RoleGroup> role_groups(const JobSpec& job) {
  const std::vector<PodRole> roles = pod_roles(job);
  if (has_launcher(job)) {
    return {{k_launcher, {roles.front()}}, {k_worker_role, {roles.begin() + 1, roles.end()}}};
  }
  if (find_job_type(job.type)->has_tasks) {
    return task_groups(roles);
  }
  const auto worker = std::find_if(roles.begin(), roles.end(),
                                   [](const PodRole& role) { return role.name == k_worker; });
  const PodRole& usual = worker == roles.end() ? roles.front() : *worker;
  RoleGroup lead;
  RoleGroup workers = {k_worker_role, {}};
  std::vector<RoleGroup> others;
  for (const PodRole& role : roles) {
    if (asks(role) == asks(usual)) {
      workers.roles.push_back(role);
    } else if (role.ranked) { // A chief or master: there is one.
      lead = {role.name, {role}};
    } else if (!others.empty() && asks(role) == asks(others.back().roles[0])) {
      others.back().roles.push_back(role);
    } else {
      others.push_back({role.name, {role}});
    }
  }
  std::vector<RoleGroup> groups;
  for (RoleGroup* group : {&lead, &workers}) {
    if (!group->roles.empty()) {
      groups.push_back(std::move(*group));
    }
  }
  groups.insert(groups.end(), others.begin(), others.end());
  return groups;
}

std::string script_name(const RoleGroup& group) {
  const bool is_usual = group.name == k_worker_role || group.name == k_launcher;
  return !group.roles[0].runs_command ? "worker.sh" : is_usual ? "start.sh" : group.name + ".sh";
}

std::string sequence_script_name(const RoleGroup& group) {
  return group.name == k_worker_role ? "sequence.sh" : group.name + "-sequence.sh";
}

bool is_decided_by_chief(const JobSpec& job) { return job.success_policy == "ChiefWorker"; }

std::string pod_owner_name(const JobSpec& job, std::string_view group) {
  return role_job_name(job.name, group) + (has_jobset(job) ? "-0" : "");
}

json job_data(const JobSpec& job, const RoleGroup& group, const JobSecrets& secrets) {
  const std::vector<PodRole>& roles = group.roles;
  const bool launcher = group.name == k_launcher;
  const bool owns_rest = group.name == k_worker_role;
  const bool decides_too = !owns_rest && !launcher && roles[0].ranked; // A chief, or a task.
  const std::string decides = has_launcher(job) || !owns_rest ? "" : deciding(job, roles);
  json data = {{"name", job.name},
               {"namespace", job.namespace_name},
               {"job_object", role_job_name(job.name, group.name)},
               {"group", section(!owns_rest, {{"role", group.name}})},
               {"has_ssh", has_launcher(job)},
               {"discovers_hosts", job.type == "etjob"}, // Where Arena has the script.
               {"script", "/etc/dtrain/" + script_name(group)},
               {"decides_with_workers", decides_too && !is_decided_by_chief(job)},
               {"own_program", job.runs_images_own_program()},
               {"type", find_job_type(job.type)->trainer},
               {"roles", roles_text(roles)},
               {"instances", instances_of(roles)},
               {"host_network", job.host_network},
               {"host_ipc", job.host_ipc},
               {"host_pid", job.host_pid},
               // A JobSet restarts all: what fails in a Job of it fails the Job.
               {"max_restarts", has_jobset(job) ? 0 : job.max_restarts},
               {"restart_count", has_jobset(job) ? k_set_restarts : k_index_failures},
               {"grace_seconds", seconds(job.grace_period_ms)},
               {"lost_node_seconds", k_lost_node_seconds},
               {"image", roles[0].image},
               {"share_memory", own::share_memory(job)},
               {"keep_from_disruption", keeps_from_disruption(job)},
               {"replace_from_lost_node", !keeps_from_disruption(job)}};
  data["success"] = section(!decides.empty(), {{"indexes", decides}});
  data["labels"] = pairs(job.labels, "--label");
  data["board"] = section(job.tensorboard && owns_rest, {{"url", board_url(job)}});
  data["annotations"] = pairs(roles[0].annotations, "--annotation");
  data["queue"] = section(in_kueue(job) && owns_rest && !has_jobset(job), {{"name", job.queue}});
  data["volcano"] = gang_api(job) == GangApi::volcano;
  data["coscheduling"] = gang_api(job) == GangApi::coscheduling;
  data["active_deadline"] =
      section(job.running_timeout_ms > 0, {{"seconds", seconds(job.running_timeout_ms)}});
  data["ttl"] =
      section(job.ttl_after_finished_ms >= 0, {{"seconds", seconds(job.ttl_after_finished_ms)}});
  const std::string folder = start_folder(job);
  data["sequence"] = section(!job.role_sequence.empty(),
                             {{"sequence_script", "/etc/dtrain/" + sequence_script_name(group)}});
  data["working_dir"] = section(!folder.empty(), {{"path", folder}});
  add_rights(job, data);
  add_placement(job, roles[0], data);
  add_volumes(job, data);
  data["has_files"] = !data["files"].empty();
  data["has_init"] = !data["code"].empty() || !data["buckets"].empty() || !data["sequence"].empty();
  data["has_environment"] = !secrets.env.empty();
  data["cluster_secrets"] = json::array();
  for (const std::string& secret : secrets.of_cluster) {
    data["cluster_secrets"].push_back({{"secret", secret}});
  }
  data["has_cluster_secrets"] = !secrets.of_cluster.empty();
  return data;
}

} // namespace dtrain::kubernetes
