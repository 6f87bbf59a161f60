// TensorBoard in the cluster: a Deployment and a Service beside the job.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"
#include "backends/plan.h"

#include <functional>
#include <string>

namespace dtrain::kubernetes {

inline constexpr const char* k_board_annotation = "dtrain/tensorboard"; ///< On the Job: the URL.
inline constexpr const char* k_board_label = "dtrain/tensorboard";      ///< The job, on its Pod.

/// Its URL within the cluster.
std::string board_url(const JobSpec& job);

/// Adds tensorboard.yaml to the plan, and a notice where --logdir is on none of the job's volumes.
/// Throws UsageError where the name is too long.
void add_board(const JobSpec& job, const Templates& templates, Plan& plan);

/// Backend::forward_tensorboard(). Throws UsageError where the job has none, EngineError where it
/// does not run.
int forward_board(ApiClient& api, const JobRef& job, int port,
                  const std::function<void(const std::string& url)>& opened);

} // namespace dtrain::kubernetes
