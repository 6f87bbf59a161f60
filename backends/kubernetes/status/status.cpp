#include "backends/kubernetes/status/status.h"

#include "backends/kubernetes/connect/tensorboard.h"
#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/status/kueue.h"
#include "backends/kubernetes/status/pod_status.h"
#include "backends/kubernetes/status/reasons.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

/// Decided, but Pods are still being ended.
bool is_ending(const json& job) {
  return has_condition(job, "FailureTarget") || has_condition(job, "SuccessCriteriaMet");
}

/// The Jobs that there are, in the order of their instances.
JobList jobs_of(const json& job, const json& lead, const JobList& others) {
  JobList jobs;
  for (const json* each : {&lead, &job}) {
    if (!each->is_null()) {
      jobs.push_back(each);
    }
  }
  jobs.insert(jobs.end(), others.begin(), others.end());
  return jobs;
}

template <typename Is>
bool any_of(const JobList& jobs, const Is& is_so) {
  return std::any_of(jobs.begin(), jobs.end(), [&](const json* job) { return is_so(*job); });
}

bool has_ended(const json& job) {
  return has_condition(job, "Complete") || has_condition(job, "Failed");
}

bool is_launcher(const json& lead) {
  return !lead.is_null() && instance_of(lead, 0).starts_with(k_launcher);
}

/// Jobs that decide beside that of the first instance: the workers', a task's.
bool decides_too(const json& job) { return !annotation(job, k_success_annotation).empty(); }

/// The first instance's Job decides where it has one, alone or with the others'; so do a
/// volcanojob's tasks.
bool has_succeeded(const json& job, const json& lead, const JobList& others) {
  const bool alone = !lead.is_null() && !decides_too(lead);
  return (lead.is_null() || has_condition(lead, "Complete")) &&
         (alone || has_condition(job, "Complete")) &&
         std::all_of(others.begin(), others.end(), [](const json* each) {
           return !decides_too(*each) || has_condition(*each, "Complete");
         });
}

/// "ps" before "evaluator", "task-2" before "task-10": as their instances are numbered.
bool is_before(const json& one, const json& other) {
  const std::string first = label(one, k_role_label);
  const std::string second = label(other, k_role_label);
  return std::pair(first.size(), first) < std::pair(second.size(), second);
}

/// The phase as far as the Jobs alone tell it.
Phase phase_of(const json& job, const json& lead, const JobList& others) {
  if (has_succeeded(job, lead, others)) {
    return Phase::succeeded;
  }
  const JobList jobs = jobs_of(job, lead, others);
  if (any_of(jobs, [](const json& each) { return has_condition(each, "Failed"); })) {
    return Phase::failed;
  }
  if (is_suspended(job) || is_suspended(lead)) {
    return Phase::queuing;
  }
  if (any_of(jobs, is_ending)) {
    return Phase::running;
  }
  const auto lacks_pods = [](const json& each) {
    std::int64_t up = number_at(each, "status/ready") + number_at(each, "status/succeeded");
    return up < number_at(each, "spec/completions", 1);
  };
  return any_of(jobs, lacks_pods) ? Phase::pending : Phase::running;
}

int completions_of(const json& job) {
  return static_cast<int>(number_at(job, "spec/completions", 1));
}

/// The Job of the instance in that place, and its place there.
std::pair<const json*, int> owner_of(const JobObjects& objects, int place) {
  const JobList jobs = jobs_of(objects);
  for (const json* job : jobs) {
    if (place < completions_of(*job) || job == jobs.back()) {
      return {job, place};
    }
    place -= completions_of(*job);
  }
  return {&objects.job, place};
}

FailureCause cause_of(const JobObjects& objects) {
  FailureCause cause;
  const json* pod = failed_pod(objects);
  const std::string why = why_failed(objects);
  // The Job ended its ranks at the deadline: none of them is the cause.
  if (pod == nullptr || why.starts_with("DeadlineExceeded")) {
    cause.message = why;
    return cause;
  }
  cause.instance = instance_of(*pod);
  const std::string role = cause.instance.substr(0, cause.instance.rfind('-'));
  cause.rank = is_ranked_role(role) && !is_launcher(objects.lead) ? place_of(objects, *pod) : -1;
  cause.node = text_at(*pod, "spec/nodeName");
  read_exit(*pod, cause.exit_code, cause.signal);
  cause.message = pod_message(*pod);
  return cause;
}

std::string reason_of(const FailureCause& cause) {
  if (cause.instance.empty()) {
    return cause.message;
  }
  return failure_text(cause) + (cause.message.empty() ? "" : ": " + cause.message);
}

/// Whether "0,2-4" names `place`.
bool names_index(std::string_view indexes, int place) {
  while (!indexes.empty()) {
    const std::size_t end = std::min(indexes.find(','), indexes.size());
    const std::string_view range = indexes.substr(0, end);
    const std::size_t dash = std::min(range.find('-'), range.size());
    int first = -1;
    std::from_chars(range.data(), range.data() + dash, first);
    int last = first;
    if (dash < range.size()) {
      std::from_chars(range.data() + dash + 1, range.data() + range.size(), last);
    }
    if (first <= place && place <= last) {
      return true;
    }
    indexes.remove_prefix(std::min(end + 1, indexes.size()));
  }
  return false;
}

/// The phase of an instance whose Pod is gone, from what its Job keeps of it, in a job that ended
/// in `of_job`.
Phase phase_without_pod(const json& owner, int place, Phase of_job) {
  const std::string completed = text_at(owner, "status/completedIndexes");
  const std::string failed = text_at(owner, "status/failedIndexes");
  if (completed.empty() && failed.empty()) {
    return of_job;
  }
  return names_index(completed, place) ? Phase::succeeded
         : names_index(failed, place)  ? Phase::failed
                                       : Phase::terminated;
}

/// Set by dtrain itself, not by --label.
bool is_own_label(std::string_view key) {
  return key.starts_with("dtrain/") || key == k_manager_label || key == k_queue_label;
}

} // namespace

bool is_suspended(const json& job) {
  const json& suspend = member(job, "spec/suspend");
  return suspend.is_boolean() && suspend.get<bool>();
}

JobList pointers(const std::vector<json>& jobs) {
  JobList list;
  for (const json& job : jobs) {
    list.push_back(&job);
  }
  return list;
}

JobList jobs_of(const JobObjects& objects) {
  return jobs_of(objects.job, objects.lead, pointers(objects.others));
}

JobList left_over(const json& job, const json& lead, const JobList& others) {
  JobList left;
  const bool is_over = is_final(phase_of(job, lead, others));
  if (!is_over || is_launcher(lead)) {
    return left;
  }
  for (const json* each : jobs_of(job, lead, others)) {
    if (!has_ended(*each) && !is_suspended(*each)) {
      left.push_back(each);
    }
  }
  return left;
}

JobList left_over(const JobObjects& objects) {
  return left_over(objects.job, objects.lead, pointers(objects.others));
}

JobSummary summarize(const JobObjects& objects) {
  return summarize(objects.job, objects.lead, pointers(objects.others));
}

JobSummary summarize(const json& job, const json& lead, const JobList& others) {
  const json& decides = lead.is_null() ? job : lead;
  JobSummary summary;
  summary.name = label(job, k_job_label);
  summary.namespace_name = text_at(job, "metadata/namespace");
  summary.trainer = label(job, k_type_label);
  summary.priority = text_at(job, "spec/template/spec/priorityClassName");
  for (const auto& [key, value] : member(job, "metadata/labels").items()) {
    if (value.is_string() && !is_own_label(key)) {
      summary.labels.push_back(key + "=" + value.get<std::string>());
    }
  }
  summary.phase = phase_of(job, lead, others);
  if (summary.phase == Phase::queuing && !is_in_queue(job)) {
    summary.phase = Phase::suspended;
  }
  summary.created = parse_time(text_at(job, "metadata/creationTimestamp"));
  summary.started = parse_time(text_at(job, "status/startTime"));
  summary.ended = parse_time(text_at(decides, "status/completionTime"));
  for (const json* each : others) {
    if (summary.ended != 0 && decides_too(*each)) {
      summary.ended = std::max(summary.ended, parse_time(text_at(*each, "status/completionTime")));
    }
  }
  const JobList jobs = jobs_of(job, lead, others);
  const auto failed = std::find_if(jobs.begin(), jobs.end(),
                                   [](const json* each) { return has_condition(*each, "Failed"); });
  if (summary.phase == Phase::failed && failed != jobs.end()) {
    summary.ended = parse_time(text_at(condition(**failed, "Failed"), "lastTransitionTime"));
  }
  for (const json* each : jobs) {
    const int gpus = gpus_of(member(*each, "spec/template/spec"));
    summary.gpus_requested += gpus * completions_of(*each);
    summary.gpus_allocated +=
        is_final(summary.phase) ? 0 : gpus * static_cast<int>(number_at(*each, "status/ready"));
  }
  return summary;
}

bool may_be_set(const std::string& name, const std::vector<ObjectPtr>& jobs) {
  const std::string root = role_job_name(name, k_worker_role);
  return std::none_of(jobs.begin(), jobs.end(),
                      [&](const ObjectPtr& job) { return text_at(*job, "metadata/name") == root; });
}

JobObjects job_objects(const std::string& name, const std::vector<ObjectPtr>& jobs,
                       const std::vector<ObjectPtr>& pods, const std::vector<ObjectPtr>& sets) {
  JobObjects objects;
  for (const ObjectPtr& set : sets) {
    if (text_at(*set, "metadata/name") == name && label(*set, k_manager_label) == k_manager) {
      objects.set = *set;
      objects.job = job_in_set(*set, k_worker_role, jobs);
      objects.lead = job_in_set(*set, lead_role(*set), jobs);
      objects.others = others_in_set(*set, jobs);
    }
  }
  const std::string root = role_job_name(name, k_worker_role);
  for (const ObjectPtr& job : jobs) {
    if (text_at(*job, "metadata/name") == root && label(*job, k_manager_label) == k_manager) {
      objects.job = *job;
    }
  }
  const std::string uid = text_at(objects.job, "metadata/uid");
  for (const ObjectPtr& job : jobs) {
    if (const std::string role = label(*job, k_role_label);
        !role.empty() && !uid.empty() && root_uid(*job) == uid) {
      if (is_lead_role(role)) {
        objects.lead = *job;
      } else {
        objects.others.push_back(*job);
      }
    }
  }
  std::sort(objects.others.begin(), objects.others.end(), is_before);
  const JobList all = jobs_of(objects);
  std::copy_if(
      pods.begin(), pods.end(), std::back_inserter(objects.pods), [&](const ObjectPtr& pod) {
        const std::string owner = owner_uid(*pod);
        return !owner.empty() && std::any_of(all.begin(), all.end(), [&](const json* each) {
          return text_at(*each, "metadata/uid") == owner;
        });
      });
  return objects;
}

int place_of(const JobObjects& objects, const json& pod) {
  const int index = index_of(pod);
  const JobList jobs = jobs_of(objects);
  if (jobs.size() < 2 || index < 0) {
    return index;
  }
  int first = 0;
  for (const json* job : jobs) {
    if (owner_uid(pod) == text_at(*job, "metadata/uid")) {
      return first + index;
    }
    first += completions_of(*job);
  }
  return -1;
}

std::vector<const json*> latest_pods(const JobObjects& objects) {
  std::size_t count = 0;
  for (const json* job : jobs_of(objects)) {
    count += static_cast<std::size_t>(completions_of(*job));
  }
  std::vector<const json*> latest(count, nullptr);
  for (const ObjectPtr& shared : objects.pods) {
    const json& pod = *shared;
    int index = place_of(objects, pod);
    if (index < 0 || static_cast<std::size_t>(index) >= count) {
      continue;
    }
    const json*& slot = latest[static_cast<std::size_t>(index)];
    auto age = [](const json& p) {
      return std::tuple(text_at(p, "metadata/creationTimestamp"), failure_count(p),
                        !member(p, "metadata").contains("deletionTimestamp"));
    };
    if (slot == nullptr || age(pod) >= age(*slot)) {
      slot = &pod;
    }
  }
  return latest;
}

const json* failed_pod(const JobObjects& objects) {
  // The first to end is the cause; the others' deaths follow from it. Those that the Job itself
  // ended carry a deletion time, and come last.
  const json* first = nullptr;
  auto order = [&](const json& pod) {
    Time ended = pod_end(pod);
    bool unknown = ended == 0;
    return std::tuple(member(pod, "metadata").contains("deletionTimestamp"), unknown, ended,
                      place_of(objects, pod));
  };
  for (const json* pod : latest_pods(objects)) {
    if (pod != nullptr && pod_phase(*pod) == Phase::failed &&
        (first == nullptr || order(*pod) < order(*first))) {
      first = pod;
    }
  }
  return first;
}

bool wants_events(const JobObjects& objects) {
  const Phase phase = phase_of(objects.job, objects.lead, pointers(objects.others));
  if (is_final(phase) || is_held_back(phase) || any_of(jobs_of(objects), is_ending)) {
    return false;
  }
  for (const json* pod : latest_pods(objects)) {
    if (pod == nullptr || pod_phase(*pod) == Phase::pending) {
      return true;
    }
  }
  return false;
}

std::set<std::string> running_nodes(const JobObjects& objects) {
  std::set<std::string> nodes;
  for (const json* pod : latest_pods(objects)) {
    if (pod != nullptr && pod_phase(*pod) == Phase::running) {
      nodes.insert(text_at(*pod, "spec/nodeName"));
    }
  }
  return nodes;
}

JobStatus status_of(const JobObjects& objects) {
  JobStatus status;
  static_cast<JobSummary&>(status) = summarize(objects);
  status.uid = text_at(objects.job, "metadata/uid");
  status.tensorboard = annotation(objects.job, k_board_annotation);
  status.gpus_allocated = 0;
  status.restarts = static_cast<int>(number_at(objects.job, "status/restarts")); // For a JobSet.
  int index = 0;
  bool all_up = true;
  const bool ending = any_of(jobs_of(objects), is_ending);
  for (const json* pod : latest_pods(objects)) {
    InstanceStatus instance;
    const auto [owner, place] = owner_of(objects, index);
    if (pod != nullptr) {
      instance = instance_status(*pod);
      if (instance.phase == Phase::failed && was_ended(*pod, instance)) {
        instance.phase = Phase::terminated;
      }
      status.restarts = std::max(status.restarts, failure_count(*pod));
    } else {
      instance.name = instance_of(*owner, place);
      instance.phase = is_final(status.phase) ? phase_without_pod(*owner, place, status.phase)
                       : ending               ? Phase::terminated
                                              : Phase::pending;
      instance.gpus = gpus_of(member(*owner, "spec/template/spec"));
    }
    instance.is_chief = index == 0;
    if (status.phase == Phase::succeeded && !is_final(instance.phase)) {
      instance.phase = Phase::terminated; // The Job ends the others after those that decide.
    }
    all_up = all_up && instance.phase != Phase::pending;
    status.gpus_allocated += instance.phase == Phase::running ? instance.gpus : 0;
    if (instance.is_chief) {
      status.node = instance.node;
    }
    status.instances.push_back(std::move(instance));
    ++index;
  }
  if (status.phase == Phase::pending || status.phase == Phase::running) {
    // Pods are ahead of the Job's counters, which the controller brings up to date in batches.
    bool ran = status.phase == Phase::running && objects.pods.empty();
    status.phase = all_up || ran ? Phase::running : Phase::pending;
  }
  if (status.phase == Phase::failed) {
    status.cause = cause_of(objects);
    status.reason = reason_of(*status.cause);
  } else if (status.phase != Phase::succeeded) {
    status.reason = why_pending(objects);
  }
  if (is_held_back(status.phase)) { // In a queue the Workload says whether it may run.
    status.phase = status.reason == k_suspended ? Phase::suspended : Phase::queuing;
    for (InstanceStatus& instance : status.instances) {
      instance.phase = instance.phase == Phase::pending ? status.phase : instance.phase;
    }
  }
  return status;
}

} // namespace dtrain::kubernetes
