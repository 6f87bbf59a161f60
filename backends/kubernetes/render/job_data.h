// The data of job.yaml.
#pragma once

#include "backends/kubernetes/render/job_secrets.h"
#include "backends/kubernetes/render/pod_roles.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::kubernetes {

/// In types with a launcher, the launcher and the workers have a Job each.
bool has_launcher(const JobSpec& job);

/// Pods of a Job whose roles these are.
int instances_of(const std::vector<PodRole>& roles);

/// One of the job's Jobs: its Pods have these roles, and the same resources.
struct RoleGroup {
  std::string name; ///< "worker", which owns the rest; "launcher"; "chief", "master"; "ps" …
  std::vector<PodRole> roles; ///< In the order of job_roles().
};

/// In the order of their instances. Roles with the workers' resources are in the workers' Job; a
/// launcher, and a chief or master with other resources, has a Job of its own; so have roles
/// without ranks, one Job for equal resources. Consecutive tasks of a volcanojob with equal
/// resources share a Job.
std::vector<RoleGroup> role_groups(const JobSpec& job);

/// The script of its Pods in the ConfigMap: "start.sh", "worker.sh", "ps.sh".
std::string script_name(const RoleGroup& group);

/// The script with which its Pods wait for the roles before theirs (--role-sequence).
std::string sequence_script_name(const RoleGroup& group);

/// Whether the success of the first instance is the job's.
bool is_decided_by_chief(const JobSpec& job);

/// The Job of a group, as its Pods' host names have it: of a JobSet, "NAME-worker-0".
std::string pod_owner_name(const JobSpec& job, std::string_view group);

/// The data of one Job, whose Pods have these roles. Throws UsageError naming the flag that cannot
/// be read.
nlohmann::json job_data(const JobSpec& job, const RoleGroup& group, const JobSecrets& secrets);

} // namespace dtrain::kubernetes
