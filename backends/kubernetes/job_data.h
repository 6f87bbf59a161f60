// What job.yaml is filled with.
#pragma once

#include "backends/kubernetes/needs.h"
#include "submit/job_roles.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::kubernetes {

/// Of a type with a launcher, that and the workers have a Job each.
bool has_launcher(const JobSpec& job);

/// Pods of a Job whose roles these are.
int instances_of(const std::vector<Role>& roles);

/// The roles of each of the job's Jobs, whose Pods are made from one template: first those of the
/// Job that owns the rest, the ranks and the roles without that ask for the same, or a launcher's
/// workers; then the launcher, or the other roles without ranks. In each the order is job_roles()'.
/// Throws UsageError where those of a Job do not ask for the same.
std::vector<std::vector<Role>> role_groups(const JobSpec& job);

/// What the Job of such a group is called by: "worker", "launcher", "ps".
std::string group_name(const std::vector<Role>& group);

/// The Job of a group, as its Pods' host names have it: of a JobSet, "NAME-worker-0".
std::string pod_owner_name(const JobSpec& job, std::string_view group);

/// One Job, whose Pods are of these roles. Throws UsageError naming the flag that cannot be read.
nlohmann::json job_data(const JobSpec& job, const std::vector<Role>& roles,
                        const JobSecrets& secrets);

} // namespace dtrain::kubernetes
