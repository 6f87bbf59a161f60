// --api=jobset, and trainjob (trainjob.h): the job's Jobs as one JobSet (jobset.x-k8s.io/v1alpha2),
// which owns them and all else, and restarts all of them when one has failed.
//
//   JobSet  NAME             owns the Service, ConfigMap, Secret and these:
//   Job     NAME-worker-0    made by its controller; Pods NAME-worker-0-I
//   Job     NAME-launcher-0  of a type with a launcher
//
// What is read of a job elsewhere is a Job's fields: job_in_set() gives a Job of the set with the
// fields that the set decides. Pure.
#pragma once

#include "backends/kubernetes/objects/objects.h"
#include "submit/job_spec.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace dtrain::kubernetes {

inline constexpr const char* k_jobset_group = "jobset.x-k8s.io";
inline constexpr const char* k_jobset_version = "v1alpha2";
inline constexpr const char* k_jobset_uid_label = "jobset.sigs.k8s.io/jobset-uid";

/// Whoever makes it.
bool has_jobset(const JobSpec& job);

/// The JobSet of these Jobs, as job.yaml makes them for it.
nlohmann::json jobset_of(const JobSpec& job, const std::vector<nlohmann::json>& jobs);

/// The set's Job of a role, "worker", as its latest attempt among `jobs` has it, or, where it has
/// none at the moment, as it will be made: suspended, failed and complete when the set is. Null
/// where the set has no such role.
nlohmann::json job_in_set(const nlohmann::json& set, std::string_view role,
                          const std::vector<ObjectPtr>& jobs);

/// The role of the Job of a set's first instance; empty: it has none of its own.
std::string lead_role(const nlohmann::json& set);

/// Its Jobs of roles without ranks, as from job_in_set().
std::vector<nlohmann::json> others_in_set(const nlohmann::json& set,
                                          const std::vector<ObjectPtr>& jobs);

std::string jobsets_path(std::string_view namespace_name); ///< All namespaces if empty.
std::string jobset_path(const JobRef& job);

} // namespace dtrain::kubernetes
