#include "backends/supervised/store/job_view.h"

#include "backends/support/os/process.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {

namespace {

constexpr const char* k_abandoned =
    "the job's supervisor is gone: it was killed, or the machine restarted";
constexpr const char* k_damaged = "the job's record is damaged";

Time last_known(const JobSummary& job) { return std::max(job.created, job.started); }

} // namespace

std::string place_text(const JobOwner& owner) {
  const auto& machine = owner.machine;
  return machine.boot == this_machine().boot && machine.host == this_machine().host
             ? fmt::format("on {}, in another container", printable(machine.host))
             : fmt::format("on {}", printable(machine.host));
}

bool JobViewer::is_abandoned(const JobOwner& owner) {
  const auto place = whereabouts(owner.machine);
  return place == Whereabouts::restarted ||
         (place == Whereabouts::here && !is_running(owner.guard) && !is_running(owner.supervisor));
}

std::vector<JobSummary> JobViewer::list(std::string_view namespace_name) const {
  std::vector<JobSummary> jobs;
  store_.for_each(namespace_name, [&](const JobRef& job, std::optional<JobRecordHead> head) {
    if (head && (!needs_supervisor(head->summary.phase) || !is_abandoned(*head->owner))) {
      jobs.push_back(std::move(head->summary));
      return;
    }
    // Something is wrong, or it ended between the two looks: look again, closely.
    if (const auto folder = store_.open(job)) {
      if (auto found = record(*folder, job)) {
        jobs.push_back(std::move(found->status));
      }
    }
  });
  return jobs;
}

std::optional<JobRecord> JobViewer::record(const JobFolder& folder, const JobRef& job) const {
  auto record = folder.record();
  if (record && needs_supervisor(record->status.phase) && is_abandoned(record->owner)) {
    record = folder.record(); // It may have ended between the two looks.
    if (record && needs_supervisor(record->status.phase)) {
      auto& status = record->status;
      status.phase = Phase::failed;
      status.reason = k_abandoned;
      status.ended = last_known(status);
      status.cause = job_failure(status.node, k_abandoned);
      for (auto& instance : status.instances) {
        if (!is_final(instance.phase)) {
          instance.phase = Phase::failed;
          instance.ended = std::max(instance.started, status.ended);
        }
      }
    }
  }
  if (record && record->status.reason.empty() && needs_supervisor(record->status.phase) &&
      !is_within_reach(record->owner)) {
    record->status.reason =
        fmt::format("runs {}; this is its last known state", place_text(record->owner));
  }
  if (!record && folder.read(k_plan_file)) {
    record.emplace();
    record->status.name = job.name;
    record->status.namespace_name = job.namespace_name;
    record->status.phase = Phase::failed;
    record->status.reason = k_damaged;
    record->status.cause = job_failure({}, k_damaged);
    record->owner.machine = this_machine();
  }
  return record;
}

} // namespace dtrain
