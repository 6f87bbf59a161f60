#include "backends/supervised/stop.h"

#include "backends/supervised/store/job_view.h"
#include "backends/support/os/cgroup.h"
#include "backends/support/os/files.h"
#include "backends/support/os/process.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

namespace dtrain {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds k_end_timeout{3000}; ///< Beyond the grace period.
constexpr milliseconds k_kill_timeout{2000};
constexpr int k_kill_rounds = 100; ///< For processes that fork while being killed.

/// True where the process has ended by the deadline.
bool wait_for_end(const Fd& process, Clock::time_point deadline) {
  while (process) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    if (left < 0) {
      return false;
    }
    pollfd descriptor{process.get(), POLLIN, 0};
    if (poll(&descriptor, 1, static_cast<int>(left)) > 0) {
      return true;
    }
  }
  return true;
}

/// True where both have ended by then.
bool signal_and_wait(const JobOwner& owner, int signal, Clock::time_point deadline) {
  // The guard passes it on, and is the last to go.
  const std::array processes{open_process(owner.guard), open_process(owner.supervisor)};
  for (const auto& id : {owner.guard, owner.supervisor}) {
    signal_process(id, signal);
    signal_process(id, SIGCONT); // A stopped process could not answer.
  }
  bool ended = true;
  for (const auto& process : processes) {
    ended = wait_for_end(process, deadline) && ended;
  }
  return ended;
}

/// Kills, again and again, what `find` gives, until that is nothing. Gives what would not die.
template <typename Find>
std::vector<ProcessId> kill_all(const Find& find) {
  auto left = find();
  for (int round = 0; !left.empty() && round < k_kill_rounds; ++round) {
    const auto deadline = Clock::now() + k_kill_timeout;
    std::vector<Fd> ending;
    for (const auto& process : left) {
      ending.push_back(open_process(process));
      signal_process(process, SIGKILL);
    }
    if (!std::all_of(ending.begin(), ending.end(),
                     [&](const Fd& process) { return wait_for_end(process, deadline); })) {
      std::erase_if(left, [](const ProcessId& process) { return !is_running(process); });
      break; // The kernel holds it.
    }
    left = find();
  }
  return left;
}

/// All processes below the supervisor and the guard, without these two.
std::vector<ProcessId> ranks_below(const JobOwner& owner) {
  std::vector<ProcessId> found;
  for (const auto& root : {owner.guard, owner.supervisor}) {
    if (!is_running(root)) {
      continue;
    }
    for (const auto& process : descendants(root.pid)) {
      if (process.id != owner.supervisor) {
        found.push_back(process.id);
      }
    }
  }
  return found;
}

/// Appends those that are not among them.
void add(std::vector<ProcessId>& processes, const std::vector<ProcessId>& more) {
  for (const auto& process : more) {
    if (std::find(processes.begin(), processes.end(), process) == processes.end()) {
      processes.push_back(process);
    }
  }
}

/// Its name in the kernel.
std::string program_of(const ProcessId& process) {
  const auto text = read_file_at(AT_FDCWD, fmt::format("/proc/{}/comm", process.pid)).value_or("");
  return printable(text.substr(0, text.find('\n')));
}

} // namespace

void signal_job(const JobOwner& owner, int signal) {
  const auto guard = open_process(owner.guard);
  signal_process(owner.guard, signal);
  wait_for_end(guard, Clock::now() + milliseconds(owner.grace_period_ms) + k_end_timeout);
}

std::vector<ProcessId> end_leftovers(const std::string& uid, const std::string& cgroup) {
  std::vector<ProcessId> left;
  if (!cgroup.empty()) {
    left = kill_all([&] { return Cgroup(cgroup).kill(); });
  }
  if (!uid.empty()) {
    const auto mark = fmt::format("DTRAIN_JOB_UID={}", uid);
    add(left, kill_all([&] { return processes_with_environment(mark); }));
  }
  return left;
}

void check_ended(const std::vector<ProcessId>& left, const std::string& whose) {
  std::string named;
  std::string pids;
  for (const auto& process : left) {
    named += fmt::format("{}{} ({})", named.empty() ? "" : ", ", process.pid, program_of(process));
    pids += fmt::format(" {}", process.pid);
  }
  if (!left.empty()) {
    throw EngineError(fmt::format("processes of {} survived SIGKILL: {}; they hang in the kernel "
                                  "(ps -o pid,stat,wchan{})",
                                  whose, named, pids));
  }
}

void stop_job(const JobFolder& folder, const JobRecord& record) {
  const auto& owner = record.owner;
  const auto grace = milliseconds(owner.grace_period_ms);
  if ((is_running(owner.guard) || is_running(owner.supervisor)) &&
      signal_and_wait(owner, SIGTERM, Clock::now() + grace + k_end_timeout)) {
    // A supervisor that is killed meanwhile writes no last record, and has not ended the job.
    if (const auto last = folder.record(); last && !needs_supervisor(last->status.phase)) {
      return;
    }
  }
  // From the leaves up: the guard holds the tree together, and a process that has lost both can be
  // found only by the job's control group or its environment.
  signal_process(owner.supervisor, SIGSTOP); // So that it starts nothing more.
  auto left = kill_all([&] { return ranks_below(owner); });
  signal_and_wait(owner, SIGKILL, Clock::now() + k_kill_timeout);
  add(left, end_leftovers(record.status.uid, owner.cgroup));
  check_ended(left,
              fmt::format("job {}", text_of({record.status.namespace_name, record.status.name})));
}

} // namespace dtrain
