#include "backends/batch/status.h"

#include "backends/batch/identity.h"
#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace dtrain::batch {
namespace {

constexpr int k_signal_code = 128; ///< sh adds it to the number of the signal that ended a program.
constexpr int k_last_signal = 64;

bool is_ended_by_signal(int code) {
  return code > k_signal_code && code <= k_signal_code + k_last_signal;
}

/// The rank that failed first: as the script on the first node saw it; else of those that failed by
/// themselves, where those that a signal ended are asked last, as the others are ended by one.
const InstanceStatus* first_failed(const JobRecord& record, const JobStatus& status) {
  const InstanceStatus* first = nullptr;
  for (const InstanceStatus& each : status.instances) {
    if (each.phase != Phase::failed) {
      continue;
    }
    if (each.name == record.run.first_failed) {
      return &each;
    }
    const auto key = [](const InstanceStatus& i) {
      return std::pair(i.signal.has_value(), i.ended);
    };
    if (first == nullptr || key(each) < key(*first)) {
      first = &each;
    }
  }
  return first;
}

void fill_instances(const JobRecord& record, JobStatus& status) {
  for (InstanceStatus& each : status.instances) {
    const auto found = record.ranks.find(each.name);
    if (found == record.ranks.end()) {
      each.phase = is_final(status.phase) ? Phase::terminated : Phase::pending;
      continue;
    }
    const RankRecord& rank = found->second;
    each.node = rank.node;
    each.pid = rank.pid;
    each.started = rank.started;
    each.ended = rank.ended;
    each.phase = rank.code                ? (*rank.code == 0       ? Phase::succeeded
                                             : rank.ended_by_queue ? Phase::terminated
                                                                   : Phase::failed)
                 : is_final(status.phase) ? Phase::terminated
                                          : status.phase;
    if (rank.code && is_ended_by_signal(*rank.code)) {
      each.signal = *rank.code - k_signal_code;
    } else {
      each.exit_code = rank.code;
    }
  }
}

/// The parts of a status that decide its phase and reason.
struct State {
  Phase phase = Phase::failed;
  std::string why = {}; ///< For an end that is not a rank's failure; for people.
};

/// If a job's ranks reported nothing, the queue's accounting may know how it ended.
void fill_cause(const JobRecord& record, const State& state, const QueuedJob* queued,
                JobStatus& status) {
  FailureCause cause;
  if (const InstanceStatus* first = state.why.empty() ? first_failed(record, status) : nullptr) {
    const bool ranked =
        is_ranked_role(std::string_view(first->name).substr(0, first->name.rfind('-')));
    cause.instance = first->name;
    cause.rank = ranked ? static_cast<int>(first - status.instances.data()) : -1;
    cause.node = first->node;
    cause.exit_code = first->exit_code;
    cause.signal = first->signal;
    for (InstanceStatus& each : status.instances) {
      if (each.signal && each.name != cause.instance && each.ended >= first->ended) {
        each.phase = Phase::terminated;
      }
    }
  } else if (state.why.empty() && queued != nullptr) {
    cause.exit_code = queued->exit_code;
    cause.signal = queued->signal;
  }
  if (!cause.signal && !cause.exit_code) {
    status.reason = state.why.empty() && queued != nullptr ? queued->reason_text : state.why;
  }
  if (!cause.instance.empty()) {
    status.reason = cause.message = failure_text(cause);
  } else {
    cause.message =
        cause.signal || cause.exit_code ? ending_text(cause.exit_code, cause.signal) : state.why;
  }
  status.cause = cause;
}

/// The ranks failed with their node, or made room: the queue, which has the job, starts it again.
bool is_requeued(const JobRecord& record, const QueuedJob* queued) {
  return record.may_requeue && record.run.code.value_or(0) != 0 && queued != nullptr &&
         !is_final(queued->phase);
}

/// The batch script did not begin, or is said to have ended well and is not known to have begun:
/// its node may lack the job's folder, which some queues then make there.
bool never_reported(const JobRecord& record, const QueuedJob& queued) {
  return record.run.number < 0 && (queued.phase == Phase::succeeded || queued.is_unstarted);
}

/// Reported by the script, the queue, or its last rank; 0: by none.
Time ended_at(const JobRecord& record, const QueuedJob* queued) {
  if (record.run.code) {
    return record.run.ended;
  }
  if (queued != nullptr && queued->ends != 0) {
    return queued->ends;
  }
  Time last = 0;
  for (const auto& [name, rank] : record.ranks) {
    last = std::max(last, rank.ended);
  }
  return last;
}

} // namespace

JobStatus status_of(const JobRecord& record, const QueuedJob* queued, const QueueSystem& system) {
  JobStatus status = record.status;
  State state;
  if (record.has_ended() && !is_requeued(record, queued)) {
    state.phase = *record.run.code == 0 ? Phase::succeeded : Phase::failed;
    if (queued != nullptr && (queued->phase == Phase::failed || queued->is_over_time)) {
      state = {Phase::failed, queued->why};
    }
  } else if (queued != nullptr) {
    state = {queued->phase, queued->why};
    status.reason = state.phase == Phase::pending ? queued->reason_text : state.why;
    if (state.phase == Phase::pending && status.reason.empty()) {
      status.reason =
          state.why.empty() ? fmt::format("{} has not scheduled it yet", system.name) : state.why;
    }
    status.starts = state.phase == Phase::pending ? queued->starts : 0;
    if (state.phase == Phase::pending && queued->is_held) {
      state.phase = Phase::suspended;
    } else if (never_reported(record, *queued)) {
      state.why = fmt::format("its script reported nothing{}{}{}: the nodes must share dtrain's "
                              "job folder ('dtrain check' prints its path)",
                              queued->nodes.empty() ? "" : " on ", printable(queued->nodes),
                              queued->reason.empty() ? "" : " (" + printable(queued->reason) + ")");
      status.reason = state.why;
    }
  } else if (record.is_elsewhere) {
    state.phase = record.run.is_up ? Phase::running : Phase::pending;
    status.reason =
        fmt::format("is on cluster {}, which this machine cannot reach", printable(record.cluster));
  } else if (record.id.empty() && record.run.number < 0) {
    constexpr Time k_longest_submission = 600 * k_second;
    const bool is_new = time_now() - status.created < k_longest_submission;
    state.phase = is_new ? Phase::pending : Phase::failed;
    state.why =
        is_new ? fmt::format("is being submitted to {}", system.name)
               : fmt::format("its submission to {} was interrupted: delete it and submit it again",
                             system.name);
    status.reason = state.why;
  } else {
    state.why = fmt::format("{} has no record of this job and it never {} (try {} {})", system.name,
                            record.run.number < 0 ? "started: it was probably cancelled"
                                                  : "reported an end",
                            system.forgotten, printable(record.id));
  }
  if (state.phase == Phase::running && !record.run.is_up && !record.run.code) {
    state.phase = Phase::pending;
    status.reason =
        fmt::format("{} has allocated its nodes, and its ranks are starting", system.name);
  }
  status.phase = state.phase;
  status.restarts = std::max(record.run.number, 0);
  status.started = record.run.began;
  if (is_final(status.phase)) {
    status.ended = ended_at(record, queued);
    if (status.started == 0 && queued != nullptr && !queued->nodes.empty()) {
      status.started = queued->starts;
    }
  }
  fill_instances(record, status);
  for (const InstanceStatus& each : status.instances) {
    status.gpus_allocated += each.phase == Phase::running ? each.gpus : 0;
  }
  status.node = !status.instances.empty() && !status.instances[0].node.empty()
                    ? status.instances[0].node
                    : record.run.node;
  if (status.phase == Phase::failed) {
    fill_cause(record, state, queued, status);
  }
  return status;
}

namespace {

/// "tasks: 2 running, 3 succeeded; the next: waits for nodes …"
std::string counts_text(const std::map<Phase, int>& counts, const std::string& waits) {
  std::string text;
  for (const auto& [phase, words] :
       {std::pair(Phase::running, "running"), std::pair(Phase::pending, "waiting"),
        std::pair(Phase::suspended, "held"), std::pair(Phase::succeeded, "succeeded"),
        std::pair(Phase::failed, "failed")}) {
    if (const auto found = counts.find(phase); found != counts.end()) {
      text += fmt::format("{}{} {}", text.empty() ? "tasks: " : ", ", found->second, words);
    }
  }
  return text + (waits.empty() ? "" : "; the next: " + waits);
}

Phase phase_of_all(const std::map<Phase, int>& counts) {
  for (const Phase phase :
       {Phase::running, Phase::pending, Phase::suspended, Phase::failed, Phase::succeeded}) {
    if (counts.contains(phase)) {
      return phase;
    }
  }
  return Phase::pending;
}

} // namespace

JobStatus status_of(const JobRecord& record, const Queue& queue, const QueueSystem& system) {
  const auto find = [&](const JobRecord& part) {
    const QueuedJob* const found =
        part.is_elsewhere || part.id.empty() ? nullptr : queue.find(part.id);
    return found != nullptr && is_ours(part, *found) ? found : nullptr;
  };
  if (record.tasks.empty()) {
    return status_of(record, find(record), system);
  }
  JobStatus all = record.status;
  all.instances.clear();
  all.gpus_requested *= static_cast<int>(record.tasks.size());
  std::map<Phase, int> counts;
  std::string waits;
  Time first_failure = std::numeric_limits<Time>::max();
  for (const auto& [index, task] : record.tasks) {
    JobStatus one = status_of(task, find(task), system);
    ++counts[one.phase];
    all.gpus_allocated += one.gpus_allocated;
    all.restarts += one.restarts;
    if (one.started != 0 && (all.started == 0 || one.started < all.started)) {
      all.started = one.started;
    }
    all.ended = std::max(all.ended, one.ended);
    if (one.phase == Phase::pending && waits.empty()) {
      waits = one.reason;
      all.starts = one.starts;
    }
    for (InstanceStatus& instance : one.instances) {
      instance.name = fmt::format("{}/{}", index, instance.name);
      instance.is_chief = all.instances.empty();
      all.instances.push_back(std::move(instance));
    }
    if (one.cause && one.ended < first_failure) {
      first_failure = one.ended;
      all.cause = std::move(one.cause);
      if (all.cause->instance.empty()) {
        all.cause->message = fmt::format("task {}: {}", index, all.cause->message);
      } else {
        all.cause->instance = fmt::format("{}/{}", index, all.cause->instance);
        all.cause->message = fmt::format("{}/{}", index, all.cause->message);
      }
    }
  }
  all.phase = phase_of_all(counts);
  all.ended = is_final(all.phase) ? all.ended : 0;
  all.node = all.instances.empty() ? "" : all.instances[0].node;
  all.reason = counts_text(counts, waits);
  if (all.phase != Phase::failed) {
    all.cause.reset();
  }
  return all;
}

} // namespace dtrain::batch
