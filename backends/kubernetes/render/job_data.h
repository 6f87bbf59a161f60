// What job.yaml is filled with.
#pragma once

#include "backends/kubernetes/render/job_secrets.h"
#include "backends/kubernetes/render/pod_roles.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::kubernetes {

/// Of a type with a launcher, that and the workers have a Job each.
bool has_launcher(const JobSpec& job);

/// Pods of a Job whose roles these are.
int instances_of(const std::vector<PodRole>& roles);

/// One of the job's Jobs: its Pods are of these roles, and ask for the same.
struct RoleGroup {
  std::string name; ///< "worker", which owns the rest; "launcher"; "chief", "master"; "ps" …
  std::vector<PodRole> roles; ///< In job_roles()' order.
};

/// In the order of their instances. Roles that ask for the same as the workers are of their Job; a
/// launcher, and a chief or master that asks for other, have one each; so have roles without ranks
/// that do, one where they ask for the same. Of a volcanojob's tasks those that follow one another
/// and ask for the same are of one Job.
std::vector<RoleGroup> role_groups(const JobSpec& job);

/// What its Pods run, of the ConfigMap's: "start.sh", "worker.sh", "ps.sh".
std::string script_name(const RoleGroup& group);

/// What waits in its Pods for the roles before theirs (--role-sequence).
std::string sequence_script_name(const RoleGroup& group);

/// Its first instance's success is the job's.
bool is_decided_by_chief(const JobSpec& job);

/// The Job of a group, as its Pods' host names have it: of a JobSet, "NAME-worker-0".
std::string pod_owner_name(const JobSpec& job, std::string_view group);

/// One Job, whose Pods are of these roles. Throws UsageError naming the flag that cannot be read.
nlohmann::json job_data(const JobSpec& job, const RoleGroup& group, const JobSecrets& secrets);

} // namespace dtrain::kubernetes
