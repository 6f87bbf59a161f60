#include "backends/supervised/stop.h"

#include "backends/support/os/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <array>
#include <chrono>

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
  }
  bool ended = true;
  for (const auto& process : processes) {
    ended = wait_for_end(process, deadline) && ended;
  }
  return ended;
}

} // namespace

void signal_job(const JobOwner& owner, int signal) {
  const auto guard = open_process(owner.guard);
  signal_process(owner.guard, signal);
  wait_for_end(guard, Clock::now() + milliseconds(owner.grace_period_ms) + k_patience);
}

void stop_job(const JobRecord& record) {
  const auto& owner = record.owner;
  const bool was_running = is_running(owner.guard) || is_running(owner.supervisor);
  const auto grace = milliseconds(owner.grace_period_ms);
  if (was_running && signal_and_wait(owner, SIGTERM, Clock::now() + grace + k_patience)) {
    return;
  }
  signal_and_wait(owner, SIGKILL, Clock::now() + k_kill_patience);
  const auto mark = fmt::format("DTRAIN_JOB_UID={}", record.status.uid);
  for (int round = 0; round < k_kill_rounds && !record.status.uid.empty(); ++round) {
    const auto left = processes_with_environment(mark);
    if (left.empty()) {
      return;
    }
    for (const auto& process : left) {
      const auto descriptor = open_process(process);
      signal_process(process, SIGKILL);
      wait_for_end(descriptor, Clock::now() + k_kill_patience);
    }
  }
}

} // namespace dtrain
