#include "backends/slurm/queue.h"

#include "backends/slurm/split.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace dtrain::slurm {
namespace {

/// "N/A", "NONE" and "Unknown" are 0, not known.
Time read_seconds(std::string_view text) {
  Time seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc() && end == text.data() + text.size() ? seconds * k_second : 0;
}

/// "5:0" is the exit code 5, "0:9" signal 9. False of a reason.
bool read_end(std::string_view text, QueuedJob& job) {
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
    State{"SPECIAL_EXIT", Phase::suspended, "held by a special exit code"},
    State{"RESV_DEL_HOLD", Phase::suspended, "held: its reservation was deleted"},
    State{"EXPEDITING", Phase::pending, "requeued, ahead of others"},
    State{"CONFIGURING", Phase::pending, "its nodes are being started"},
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
    State{"TIMEOUT", Phase::failed, "ran into its time limit"},
    State{"DEADLINE", Phase::failed, "could not end before its deadline"},
    State{"NODE_FAIL", Phase::failed, "a node of it failed"},
    State{"BOOT_FAIL", Phase::failed, "a node of it could not be started"},
    State{"LAUNCH_FAILED", Phase::failed, "Slurm could not start it"},
    State{"RECONFIG_FAIL", Phase::failed, "a node of it could not be reconfigured"},
    State{"OUT_OF_MEMORY", Phase::failed, "ran out of memory: ask for more with --worker-memory"},
    State{"PREEMPTED", Phase::failed, "ended for a job of higher priority"},
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
    Reason{"PartitionNodeLimit", "asks for more nodes than the partition lets a job have"},
    Reason{"PartitionTimeLimit", "asks for more time than the partition lets a job have"},
    Reason{"PartitionDown", "its partition is down"},
    Reason{"PartitionInactive", "its partition is inactive"},
    Reason{"ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"},
    Reason{"Reservation", "waits for its reservation to begin"},
    Reason{"BeginTime", "waits for its begin time"},
    Reason{"JobHeldUser", "is held: dtrain resume lets it start"},
    Reason{"JobHeldAdmin", "is held by an administrator"},
    Reason{"JobHoldMaxRequeue",
           "was queued anew too often, and is held: dtrain resume lets it start"},
    Reason{"JobArrayTaskLimit", "waits for others of its array's tasks, of which so many may run"},
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
    Reason{"Cleaning", "is cleaned up after its last run, before it is queued anew"},
    Reason{"FedJobLock", "waits for the clusters of the federation to agree on who runs it"},
    Reason{"BurstBufferResources", "waits for room in the burst buffer"},
    Reason{"BurstBufferStageIn", "its data is being staged in"},
    Reason{"BurstBufferOperation", "its data could not be staged"},
    Reason{"SchedDefer", "asks to start at once, which this cluster does not do"},
    Reason{"DeadLine", "cannot end before its deadline"},
    Reason{"SystemFailure", "Slurm, a file system or the network failed"},
    Reason{"MaxMemPerLimit", "asks for more memory than a job may have"},
    Reason{"JobLaunchFailure", "could not be started on its node, and is held"},
    Reason{"Prolog", "the node's prolog runs"},
    Reason{"NonZeroExitCode", "its script failed"},
    Reason{"None", ""},
};

} // namespace

std::vector<QueuedJob> read_queue(std::string_view text) {
  constexpr std::size_t k_fields = 9;
  std::vector<QueuedJob> jobs;
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
    QueuedJob& job = jobs.emplace_back();
    job.id = fields[0];
    job.state = fields[1].substr(0, fields[1].find(' '));
    job.reason = read_end(fields[2], job) || fields[2] == "None" ? "" : fields[2];
    job.submitted = read_seconds(fields[3]);
    job.starts = read_seconds(fields[4]);
    job.ends = read_seconds(fields[5]);
    job.nodes = fields[6] == "None assigned" || fields[6] == "(null)" ? "" : fields[6];
    job.partition = fields[7];
    job.comment = fields[8] == "(null)" ? "" : fields[8];
  }
  return jobs;
}

std::vector<int> read_indexes(std::string_view text) {
  constexpr int k_most = 1'000'000;
  std::set<int> indexes;
  for (const auto each : split(text.substr(0, text.find('%')), ',')) {
    int first = 0;
    int step = 1;
    const char* const end = each.data() + each.size();
    auto at = std::from_chars(each.data(), end, first);
    int last = first;
    if (at.ec == std::errc() && at.ptr != end && *at.ptr == '-') {
      at = std::from_chars(at.ptr + 1, end, last);
      if (at.ec == std::errc() && at.ptr != end && *at.ptr == ':') {
        at = std::from_chars(at.ptr + 1, end, step);
      }
    }
    if (at.ec != std::errc() || at.ptr != end || first < 0 || last < first || last >= k_most ||
        step < 1) {
      return {};
    }
    for (int index = first; index <= last; index += std::min(step, k_most)) {
      indexes.insert(index);
    }
  }
  return {indexes.begin(), indexes.end()};
}

Queue::Queue(std::string_view text) {
  for (QueuedJob& job : read_queue(text)) {
    const auto open = job.id.find("_[");
    if (open == std::string::npos) {
      jobs_.emplace(job.id, std::move(job));
      continue;
    }
    const auto list = std::string_view(job.id).substr(open + 2);
    for (const int index : read_indexes(list.substr(0, list.find(']')))) {
      jobs_.emplace(fmt::format("{}_{}", job.id.substr(0, open), index), job);
    }
  }
}

const QueuedJob* Queue::find(const std::string& id) const {
  auto found = jobs_.find(id);
  if (found == jobs_.end()) { // Tasks that never began may be told of as the array.
    found = jobs_.find(id.substr(0, id.find('_')));
  }
  return found == jobs_.end() ? nullptr : &found->second;
}

State state_of(std::string_view name) {
  const auto found = std::find_if(k_states.begin(), k_states.end(),
                                  [&](const State& s) { return s.name == name; });
  return found == k_states.end() ? State{name, Phase::running} : *found;
}

bool is_held(const QueuedJob& job) {
  return job.reason.starts_with("JobH") || job.reason.ends_with("held") ||
         job.reason.ends_with("held state");
}

std::string reason_text(const QueuedJob& job) {
  if (job.reason.empty()) {
    return "";
  }
  // "ReqNodeNotAvail, UnavailableNodes:node3", "(launch failed requeued held)".
  const auto name = std::string_view(job.reason).substr(0, job.reason.find_first_of(",("));
  const auto found = std::find_if(k_reasons.begin(), k_reasons.end(),
                                  [&](const Reason& r) { return r.name == name; });
  if (found != k_reasons.end()) {
    return fmt::format("{} ({})", found->words, printable(job.reason));
  }
  if (name.starts_with("QOSMin")) { // QOSMinGRES
    return fmt::format("asks for less than a job of its QOS must ({})", printable(job.reason));
  }
  // A limit's name says what it bounds: QOSMaxGRESPerUser, AssocGrpCpuLimit.
  if (name.starts_with("QOS") || name.starts_with("Assoc") || name.starts_with("Max")) {
    return fmt::format("a limit of its {} is reached ({})",
                       name.starts_with("QOS")     ? "QOS"
                       : name.ends_with("PerUser") ? "user"
                                                   : "account",
                       printable(job.reason));
  }
  return printable(job.reason);
}

} // namespace dtrain::slurm
