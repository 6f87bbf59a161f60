// What a job's Pods run: the ConfigMap's scripts, and where the ranks of which they speak will be.
#pragma once

#include "backends/kubernetes/render/job_data.h"
#include "submit/rank_env.h"
#include "submit/template/templates.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Rank 0's rendezvous port and TF_CONFIG's. A Pod has an address of its own, so that no other job
/// can hold them.
inline constexpr int k_master_port = 29500;
inline constexpr int k_tf_port = 2222;

/// Where the ConfigMap is mounted.
inline constexpr const char* k_hostfile_path = "/etc/dtrain/hostfile";

/// Where the job's ranks will be. The uid and the token are the Pods' own to know: empty.
GangPlace gang_of(const JobSpec& job);

/// What the Pods of such a group start with.
std::string start_script(const JobSpec& job, const RoleGroup& group,
                         const Templates& templates = {});

/// What waits, in the Pods of such a group, for the roles that --role-sequence starts before
/// theirs.
std::string sequence_script(const JobSpec& job, const RoleGroup& group,
                            const Templates& templates = {});

/// What configmap.yaml is filled with: the scripts, the host file and the job itself.
nlohmann::json config_data(const JobSpec& job, const Templates& templates);

} // namespace dtrain::kubernetes
