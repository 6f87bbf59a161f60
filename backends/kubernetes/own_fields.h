// The fields of a job that are Kubernetes' own: call one with a job.
#pragma once

#include "submit/fields/job_fields.h"

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Their flags, keys and helps. Those of a role are prefixed with its name: "psCpuLimit",
/// --ps-cpu-limit.
std::vector<JobField> own_fields();

namespace own {

using Text = Member<std::string>;
using Texts = Member<std::vector<std::string>>;

inline const std::string k_share_memory = "2Gi";
inline constexpr int k_user = 1000;
inline constexpr int k_one = 1;

inline constexpr Texts image_pull_secrets = {.key = "imagePullSecrets"}; ///< Names of Secrets.
/// Always, IfNotPresent, Never; empty: the cluster's.
inline constexpr Text image_pull_policy = {.key = "imagePullPolicy"};
inline constexpr Text share_memory = {.key = "shareMemory", .standard = &k_share_memory};
inline constexpr Texts selectors = {.key = "selectors"};     ///< KEY=VALUE, labels of the node.
inline constexpr Texts annotations = {.key = "annotations"}; ///< KEY=VALUE
inline constexpr Texts tolerations = {.key = "tolerations"}; ///< KEY[=VALUE][:EFFECT] taints.
/// 0 is root, and no restricted Pod.
inline constexpr Member<int> run_as_user = {.key = "runAsUser", .standard = &k_user};
inline constexpr Text scheduler = {.key = "scheduler"}; ///< Empty: the cluster's.
/// Number of a volcanojob's instances that must find room before any starts.
inline constexpr Member<int> min_available = {.key = "minAvailable", .standard = &k_one};
inline constexpr Text api = {.key = "api"};          ///< job (default), jobset, trainjob.
inline constexpr Text gpu_type = {.key = "gpuType"}; ///< Model of the GPUs.
inline constexpr Texts devices = {.key = "devices"}; ///< RESOURCE=N, of each worker.
inline constexpr Texts topology_spread = {.key = "topologySpread"}; ///< KEY[:required].
inline constexpr Member<bool> binpack = {.key = "binpack"}; ///< On as few nodes as possible.
inline constexpr Text worker_image = {.key = "workerImage"};
inline constexpr Text ps_image = {.key = "psImage"};
inline constexpr Text sync_image = {.key = "syncImage"};               ///< Empty: the job's.
inline constexpr Text tensorboard_image = {.key = "tensorboardImage"}; ///< Empty: the job's.

} // namespace own
} // namespace dtrain::kubernetes
