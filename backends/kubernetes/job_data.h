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

/// The Job of a role, as its Pods' host names have it: of a JobSet, "NAME-worker-0".
std::string pod_owner_name(const JobSpec& job, std::string_view role);

/// One Job, whose Pods are of these roles. Throws UsageError naming the flag that cannot be read.
nlohmann::json job_data(const JobSpec& job, const std::vector<Role>& roles,
                        const JobSecrets& secrets);

} // namespace dtrain::kubernetes
