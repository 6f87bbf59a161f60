// From the API's objects to a job's status. Pure: what is not in the objects is not known.
//
//   QUEUING    the Job is suspended: by a queue (Kueue) or by `dtrain suspend`
//   PENDING    some rank's Pod does not run yet; `reason` says why, in the cluster's words
//   RUNNING    every rank runs or has ended well
//   SUCCEEDED, FAILED   the Job's own condition says so
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/objects.h"

#include <nlohmann/json.hpp>

#include <vector>

namespace dtrain::kubernetes {

/// A job's objects, as listed or watched; shared with the watch, which replaces but never changes
/// them.
struct JobObjects {
  nlohmann::json job;            ///< batch/v1 Job of the worker role.
  std::vector<ObjectPtr> pods;   ///< Of all ranks and all attempts.
  std::vector<ObjectPtr> events; ///< Warnings about the Job and its Pods; may be empty.
};

/// By a queue, or by hand: it has no Pods.
bool is_suspended(const nlohmann::json& job);

/// The columns of `list`, from the Job alone; `node` is left empty.
JobSummary summarize(const nlohmann::json& job);

/// All but FailureCause::last_stderr, which is in no object.
JobStatus status_of(const JobObjects& objects);

/// The Pod of each rank's latest attempt, null where it has none.
std::vector<const nlohmann::json*> latest_pods(const JobObjects& objects);

/// The Pod that status_of() names as the cause, or nullptr.
const nlohmann::json* failed_pod(const JobObjects& objects);

/// Whether events could say more about why this job does not run.
bool wants_events(const JobObjects& objects);

} // namespace dtrain::kubernetes
