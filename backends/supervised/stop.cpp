#include "backends/supervised/stop.h"

#include "backends/support/os/cgroup.h"
#include "backends/support/os/process.h"
#include "submit/errors.h"

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

constexpr milliseconds k_patience{3000}; ///< Beyond the grace period.
constexpr milliseconds k_kill_patience{2000};
constexpr int k_kill_rounds = 100; ///< For what forks while it is being killed.

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
    signal_process(id, SIGCONT); // One that is stopped could not answer.
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
  std::vector<ProcessId> left;
  for (int round = 0; round < k_kill_rounds; ++round) {
    left = find();
    if (left.empty()) {
      break;
    }
    const auto deadline = Clock::now() + k_kill_patience;
    std::vector<Fd> ending;
    for (const auto& process : left) {
      ending.push_back(open_process(process));
      signal_process(process, SIGKILL);
    }
    if (!std::all_of(ending.begin(), ending.end(),
                     [&](const Fd& process) { return wait_for_end(process, deadline); })) {
      break; // The kernel holds it.
    }
  }
  return left;
}

/// All below the two that look after a job, but for them.
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

} // namespace

void signal_job(const JobOwner& owner, int signal) {
  const auto guard = open_process(owner.guard);
  signal_process(owner.guard, signal);
  wait_for_end(guard, Clock::now() + milliseconds(owner.grace_period_ms) + k_patience);
}

std::vector<ProcessId> end_leftovers(const std::string& uid, const std::string& cgroup) {
  if (!cgroup.empty()) {
    Cgroup(cgroup).kill(k_kill_patience);
  }
  const auto mark = fmt::format("DTRAIN_JOB_UID={}", uid);
  return uid.empty() ? std::vector<ProcessId>()
                     : kill_all([&] { return processes_with_environment(mark); });
}

void stop_job(const JobRecord& record) {
  const auto& owner = record.owner;
  const bool was_running = is_running(owner.guard) || is_running(owner.supervisor);
  const auto grace = milliseconds(owner.grace_period_ms);
  if (was_running && signal_and_wait(owner, SIGTERM, Clock::now() + grace + k_patience)) {
    return;
  }
  // From the leaves up: the guard holds the tree together, and who has lost both can be found by
  // the job's group or its environment alone.
  signal_process(owner.supervisor, SIGSTOP); // It starts nothing more.
  auto left = kill_all([&] { return ranks_below(owner); });
  if (!owner.cgroup.empty()) {
    Cgroup(owner.cgroup).kill(k_kill_patience);
  }
  signal_and_wait(owner, SIGKILL, Clock::now() + k_kill_patience);
  const auto marked = end_leftovers(record.status.uid, owner.cgroup);
  left.insert(left.end(), marked.begin(), marked.end());
  for (const auto& process : left) {
    if (is_running(process)) {
      throw EngineError(fmt::format("process {} of the job does not end, even by SIGKILL: the "
                                    "kernel holds it (ps -o pid,stat,wchan {})",
                                    process.pid, process.pid));
    }
  }
}

} // namespace dtrain
