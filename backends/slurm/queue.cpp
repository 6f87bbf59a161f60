#include "backends/slurm/queue.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace dtrain::slurm {
namespace {

/// "N/A", "NONE" and "Unknown" are 0, not known.
Time read_seconds(std::string_view text) {
  Time seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc() && end == text.data() + text.size() ? seconds * k_second : 0;
}

/// "5:0" is the exit code 5, "0:9" signal 9. False of a reason.
bool read_end(std::string_view text, batch::QueuedJob& job) {
  int code = 0;
  int signal = 0;
  const char* last = text.data() + text.size();
  const auto [mark, no_code] = std::from_chars(text.data(), last, code);
  if (no_code != std::errc() || mark == last || *mark != ':') {
    return false;
  }
  const auto [end, no_signal] = std::from_chars(mark + 1, last, signal);
  if (no_signal != std::errc() || end != last) {
    return false;
  }
  (signal != 0 ? job.signal : job.exit_code) = signal != 0 ? signal : code;
  return true;
}

constexpr std::array k_states = {
    State{"PENDING", Phase::pending},
    State{"REQUEUED", Phase::pending, "requeued"},
    State{"REQUEUE_HOLD", Phase::suspended, "requeued and held"},
    State{"REQUEUE_FED", Phase::pending, "requeued"},
    State{"SPECIAL_EXIT", Phase::suspended, "held after a special exit code"},
    State{"RESV_DEL_HOLD", Phase::suspended, "held: its reservation was deleted"},
    State{"EXPEDITING", Phase::pending, "requeued with priority"},
    State{"CONFIGURING", Phase::pending, "its nodes are booting"},
    State{"RUNNING", Phase::running},
    State{"COMPLETING", Phase::running, "is ending"},
    State{"SIGNALING", Phase::running},
    State{"STAGE_OUT", Phase::running, "its data is being staged out"},
    State{"STOPPED", Phase::suspended},
    State{"SUSPENDED", Phase::suspended},
    State{"RESIZING", Phase::running},
    State{"COMPLETED", Phase::succeeded},
    State{"FAILED", Phase::failed},
    State{"CANCELLED", Phase::failed, "cancelled in Slurm (scancel)"},
    State{"TIMEOUT", Phase::failed, "reached its time limit"},
    State{"DEADLINE", Phase::failed, "could not end before its deadline"},
    State{"NODE_FAIL", Phase::failed, "a node of it failed"},
    State{"BOOT_FAIL", Phase::failed, "a node of it could not be started"},
    State{"LAUNCH_FAILED", Phase::failed, "Slurm could not start it"},
    State{"RECONFIG_FAIL", Phase::failed, "a node of it could not be reconfigured"},
    State{"OUT_OF_MEMORY", Phase::failed, "ran out of memory: ask for more with --worker-memory"},
    State{"PREEMPTED", Phase::failed, "preempted by a job of higher priority"},
    State{"REVOKED", Phase::failed, "runs in another cluster of the federation"},
};

struct Reason {
  std::string_view name;
  std::string_view words;
};

constexpr std::array k_reasons = {
    Reason{"Resources", "waits for nodes to become free"},
    Reason{"Priority", "waits behind jobs of higher priority"},
    Reason{"Dependency", "waits for a job that it depends on"},
    Reason{"DependencyNeverSatisfied", "depends on a job that failed: it never starts"},
    Reason{"PartitionConfig", "asks for more nodes than the partition has: it never starts"},
    Reason{"PartitionNodeLimit", "asks for more nodes than the partition allows"},
    Reason{"PartitionTimeLimit", "asks for more time than the partition allows"},
    Reason{"PartitionDown", "its partition is down"},
    Reason{"PartitionInactive", "its partition is inactive"},
    Reason{"ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"},
    Reason{"Reservation", "waits for its reservation to begin"},
    Reason{"BeginTime", "waits for its begin time"},
    Reason{"JobHeldUser", "is held: dtrain resume lets it start"},
    Reason{"JobHeldAdmin", "is held by an administrator"},
    Reason{"JobHoldMaxRequeue", "was requeued too often and is held: dtrain resume lets it start"},
    Reason{"JobArrayTaskLimit",
           "waits for other tasks of its array (the limit of running tasks is reached)"},
    Reason{"job requeued in held state", "is held: dtrain resume lets it start"},
    Reason{"launch failed requeued held", "could not be started on its node, and is held"},
    Reason{"Licenses", "waits for licenses"},
    Reason{"NodeDown", "a node that it needs is down"},
    Reason{"BadConstraints", "no node has what --constraint asks for: it never starts"},
    Reason{"InvalidAccount", "its account may not be used"},
    Reason{"InvalidQOS", "its QOS may not be used"},
    Reason{"AccountNotAllowed", "its account may not use the partition"},
    Reason{"AccountingPolicy", "a limit of its account or QOS is reached"},
    Reason{"QOSNotAllowed", "its QOS may not use the partition"},
    Reason{"ReservationDeleted", "its reservation was deleted"},
    Reason{"Constraints", "no node that could take it now has what --constraint asks for"},
    Reason{"Cleaning", "is being cleaned up after its last run, then it is requeued"},
    Reason{"FedJobLock", "waits for the federation to choose a cluster"},
    Reason{"BurstBufferResources", "waits for room in the burst buffer"},
    Reason{"BurstBufferStageIn", "its data is being staged in"},
    Reason{"BurstBufferOperation", "its data could not be staged"},
    Reason{"SchedDefer", "asks to start at once, which this cluster does not allow"},
    Reason{"DeadLine", "cannot end before its deadline"},
    Reason{"SystemFailure", "Slurm, a file system or the network failed"},
    Reason{"MaxMemPerLimit", "asks for more memory than the limit of a job"},
    Reason{"JobLaunchFailure", "could not be started on its node, and is held"},
    Reason{"Prolog", "waits for the node's prolog script"},
    Reason{"NonZeroExitCode", "its script failed"},
    Reason{"None", ""},
};

/// True of a pending job that somebody has to release: JobHeldUser, JobHoldMaxRequeue, "job
/// requeued in held state".
bool is_held(std::string_view reason) {
  return reason.starts_with("JobH") || reason.ends_with("held") || reason.ends_with("held state");
}

/// Before 23.02 Slurm reports a script that it could not start, because the node lacks the job's
/// folder, by this exit with a signal of its own, or with the reason that it gives for any end by a
/// signal.
bool is_unstarted(const batch::QueuedJob& job) {
  constexpr int k_no_start = 53;
  return job.state == "FAILED" && (job.signal == k_no_start || job.reason == "JobLaunchFailure" ||
                                   job.reason.starts_with("RaisedSignal"));
}

} // namespace

std::vector<batch::QueuedJob> read_queue(std::string_view text) {
  constexpr std::size_t k_fields = 9;
  std::vector<batch::QueuedJob> jobs;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    std::array<std::string_view, k_fields> fields;
    std::size_t count = 0;
    for (; count < k_fields - 1; ++count) {
      const auto mark = line.find('|');
      if (mark == std::string_view::npos) {
        break;
      }
      fields[count] = line.substr(0, mark);
      line.remove_prefix(mark + 1);
    }
    if (count < k_fields - 1) {
      continue;
    }
    fields[count] = line;
    batch::QueuedJob& job = jobs.emplace_back();
    job.id = fields[0];
    job.state = fields[1].substr(0, fields[1].find(' '));
    job.reason = read_end(fields[2], job) || fields[2] == "None" ? "" : fields[2];
    job.submitted = read_seconds(fields[3]);
    job.starts = read_seconds(fields[4]);
    job.ends = read_seconds(fields[5]);
    job.nodes = fields[6] == "None assigned" || fields[6] == "(null)" ? "" : fields[6];
    job.partition = fields[7];
    job.comment = fields[8] == "(null)" ? "" : fields[8];
    const State state = state_of(job.state);
    job.is_over_time = job.state == "COMPLETING" && job.reason == "TimeLimit";
    job.phase = state.phase;
    job.why = job.is_over_time ? state_of("TIMEOUT").why : state.why;
    job.reason_text = reason_text(job.reason);
    job.is_held = is_held(job.reason);
    job.is_unstarted = is_unstarted(job);
  }
  return jobs;
}

State state_of(std::string_view name) {
  const auto found = std::find_if(k_states.begin(), k_states.end(),
                                  [&](const State& s) { return s.name == name; });
  return found == k_states.end() ? State{name, Phase::running} : *found;
}

std::string reason_text(std::string_view reason) {
  if (reason.empty()) {
    return "";
  }
  // "ReqNodeNotAvail, UnavailableNodes:node3", "(launch failed requeued held)".
  const auto name = reason.substr(0, reason.find_first_of(",("));
  const auto found = std::find_if(k_reasons.begin(), k_reasons.end(),
                                  [&](const Reason& r) { return r.name == name; });
  if (found != k_reasons.end()) {
    return fmt::format("{} ({})", found->words, printable(reason));
  }
  if (name.starts_with("QOSMin")) { // QOSMinGRES
    return fmt::format("asks for less than its QOS requires ({})", printable(reason));
  }
  // The name of a limit says what it bounds: QOSMaxGRESPerUser, AssocGrpCpuLimit.
  if (name.starts_with("QOS") || name.starts_with("Assoc") || name.starts_with("Max")) {
    return fmt::format("a limit of its {} is reached ({})",
                       name.starts_with("QOS")     ? "QOS"
                       : name.ends_with("PerUser") ? "user"
                                                   : "account",
                       printable(reason));
  }
  return printable(reason);
}

} // namespace dtrain::slurm
