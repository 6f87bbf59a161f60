// From the API's objects to a job's status. Pure: depends on nothing but the objects.
//
//   QUEUING    the Job is suspended: by a queue (Kueue) or by `dtrain suspend`
//   PENDING    some rank's Pod does not run yet; `reason` says why, in the cluster's words
//   RUNNING    every rank runs or has ended well
//   SUCCEEDED, FAILED   the Job's own condition says so
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/objects/objects.h"

#include <nlohmann/json.hpp>

#include <set>
#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// A job's objects, as listed or watched; shared with the watch, which replaces but never changes
/// them.
struct JobObjects {
  nlohmann::json job;            ///< The Job that owns the rest; null: there is none.
  std::vector<ObjectPtr> pods;   ///< Of all instances and all attempts.
  std::vector<ObjectPtr> events; ///< Warnings about the Jobs and their Pods; may be empty.
  /// The first instance's own Job, if it has one: a launcher, chief or master, whose end is the
  /// job's. Null: none.
  nlohmann::json lead = {};
  /// Further Jobs: of roles without ranks, parameter servers first, and of tasks after the first.
  std::vector<nlohmann::json> others = {};
  nlohmann::json set = {}; ///< The JobSet that owns all of them; null: `job` does.
  /// Workloads of a job that waits in a queue (kueue.h); may be empty.
  std::vector<ObjectPtr> workloads = {};
  std::vector<nlohmann::json> positions = {}; ///< Of all that wait there; may be empty.
  std::vector<nlohmann::json> leases = {};    ///< Of its Pods' nodes; may be empty.
  Time now = 0;                               ///< By the server's clock, when it gave the leases.
};

using JobList = std::vector<const nlohmann::json*>;
JobList pointers(const std::vector<nlohmann::json>& jobs);

/// The Jobs that there are, in the order of their instances.
JobList jobs_of(const JobObjects& objects);

/// The job of that name among Jobs, Pods and JobSets with its label, without those of one that had
/// the name before. No events.
JobObjects job_objects(const std::string& name, const std::vector<ObjectPtr>& jobs,
                       const std::vector<ObjectPtr>& pods, const std::vector<ObjectPtr>& sets = {});

/// Whether that job's Jobs, in this list, are a JobSet's, or can only be that, since there are
/// none.
bool may_be_set(const std::string& name, const std::vector<ObjectPtr>& jobs);

/// The place of a Pod's instance in JobStatus::instances; -1: none.
int place_of(const JobObjects& objects, const nlohmann::json& pod);

/// Suspended by a queue, or by hand: it has no Pods.
bool is_suspended(const nlohmann::json& job);

/// The columns of `list`, from the Jobs alone; `node` is left empty.
JobSummary summarize(const nlohmann::json& job, const nlohmann::json& lead = {},
                     const JobList& others = {});
JobSummary summarize(const JobObjects& objects);

/// For a job that is over, the Jobs that nothing in the cluster ends: no Job ends those that it
/// does not own. A launcher ends its workers itself.
JobList left_over(const nlohmann::json& job, const nlohmann::json& lead, const JobList& others);
JobList left_over(const JobObjects& objects);

/// Everything but FailureCause::last_stderr, which is in no object.
JobStatus status_of(const JobObjects& objects);

/// By place, the Pod of each instance's latest attempt; null if it has none.
std::vector<const nlohmann::json*> latest_pods(const JobObjects& objects);

/// The Pod that status_of() names as the cause, or nullptr.
const nlohmann::json* failed_pod(const JobObjects& objects);

/// Whether events could say more about why this job does not run.
bool wants_events(const JobObjects& objects);

/// The nodes that the job's Pods run on, each once: their leases tell of one that fell silent.
std::set<std::string> running_nodes(const JobObjects& objects);

} // namespace dtrain::kubernetes
