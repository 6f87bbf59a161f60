// The scripts of a job's Pods, in the ConfigMap, and where its ranks will be.
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

/// In the mount of the ConfigMap.
inline constexpr const char* k_hostfile_path = "/etc/dtrain/hostfile";

/// Where the job's ranks will be. Uid and token are empty: only the Pods know them.
GangPlace gang_of(const JobSpec& job);

/// The start script of the Pods of a group.
std::string start_script(const JobSpec& job, const RoleGroup& group,
                         const Templates& templates = {});

/// The script with which the Pods of a group wait for the roles that --role-sequence starts before
/// theirs.
std::string sequence_script(const JobSpec& job, const RoleGroup& group,
                            const Templates& templates = {});

/// The data of configmap.yaml: the scripts, the host file and the job itself.
nlohmann::json config_data(const JobSpec& job, const Templates& templates);

} // namespace dtrain::kubernetes
