// What engines report: jobs and their instances, nodes and data, and whether jobs can run on the
// engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// Arena's states, and: a job that waits for `dtrain resume`; an instance that was ended for the
/// job's sake, as the others are when one has failed.
enum class Phase { queuing, pending, running, succeeded, failed, suspended, terminated };

std::string_view phase_name(Phase phase); ///< "RUNNING"
constexpr bool is_final(Phase phase) {
  return phase == Phase::succeeded || phase == Phase::failed || phase == Phase::terminated;
}
/// It neither starts nor holds anything by itself.
constexpr bool is_held_back(Phase phase) {
  return phase == Phase::queuing || phase == Phase::suspended;
}

/// Nanoseconds since the Unix epoch; 0 is "not yet".
using Time = std::int64_t;
inline constexpr Time k_second = 1'000'000'000;

/// The process of one rank (a Pod, a Slurm task).
struct InstanceStatus {
  std::string name; ///< "worker-0"
  Phase phase = Phase::pending;
  Time started = 0;
  Time ended = 0;
  bool is_chief = false;
  int gpus = 0; ///< Requested.
  std::string node;
  std::int64_t pid = 0;         ///< If the engine has one; 0: none.
  std::optional<int> exit_code; ///< Set after it ended by itself.
  std::optional<int> signal;    ///< After a signal ended it.
};

/// Why a job failed: the first rank to fail, not the ones its death took along.
struct FailureCause {
  std::string instance;
  int rank = -1; ///< -1: the job itself, not a rank.
  std::string node;
  std::optional<int> exit_code;
  std::optional<int> signal;
  std::string message;                  ///< One line.
  std::vector<std::string> last_stderr; ///< At most 20 lines.
};

/// How a process ended: "exit code 3", "signal 9 (SIGKILL)".
std::string ending_text(const std::optional<int>& exit_code, const std::optional<int>& signal);

/// "worker-1 (rank 1) on node2 ended with exit code 7"; "… failed" where how is not known.
std::string failure_text(const FailureCause& cause);

/// The columns of `list`: cheap to get for thousands of jobs.
struct JobSummary {
  std::string name;
  std::string namespace_name;
  std::string trainer; ///< "DTRAINJOB"
  std::string priority;
  Phase phase = Phase::pending;
  Time created = 0;
  Time started = 0;
  Time ended = 0;
  int gpus_requested = 0; ///< By all instances together.
  int gpus_allocated = 0;
  std::string node;                ///< Chief's.
  std::vector<std::string> labels; ///< KEY=VALUE
  Time expires = 0;                ///< When the engine forgets it; 0: never.
};

struct JobStatus : JobSummary {
  std::string uid;
  int restarts = 0;
  std::string tensorboard; ///< URL of TensorBoard; empty: none.
  std::string reason;      ///< Why pending or failed, one line, from the engine.
  Time starts = 0;         ///< When the engine expects to start it; 0: it does not say.
  std::vector<InstanceStatus> instances;
  std::optional<FailureCause> cause;
};

struct JobRef {
  std::string namespace_name;
  std::string name;
};

/// An event that an engine recorded about a job's objects.
struct JobEvent {
  std::string source; ///< "pod/mnist-worker-0"
  std::string type;   ///< "Normal", "Warning"
  Time time = 0;      ///< The last time it happened.
  std::string message;
};

/// Resource usage of one instance, with all processes below it.
struct InstanceUsage {
  std::string instance;
  std::string node;
  double cpus = 0;
  std::int64_t memory = 0; ///< Bytes.
  int gpus = 0;
};

/// A machine of the engine's.
struct NodeStatus {
  std::string name;
  std::string address;
  std::string role;   ///< "control-plane", or empty.
  std::string status; ///< "Ready", "NotReady", "Ready,SchedulingDisabled"
  int gpus = 0;       ///< GPUs that jobs may have.
  int gpus_requested = 0;
  double cpus = 0; ///< 0: the engine does not say, nor of what follows.
  double cpus_used = 0;
  std::int64_t memory = 0; ///< Bytes.
  std::int64_t memory_used = 0;
  /// What we may not see of it, and the right that would be needed; one line.
  std::string unseen = {};
  int gpus_free() const { return gpus > gpus_requested ? gpus - gpus_requested : 0; }
};

/// Data that an engine has by name: --data=NAME:/path mounts it where no location has that name.
struct Claim {
  std::string namespace_name;
  std::string name;
  std::string status;                    ///< "Bound", "Pending"
  std::string size;                      ///< "10Gi"; empty: not known.
  std::vector<std::string> access_modes; ///< "ReadWriteMany"
};

/// One line of `dtrain check`.
struct CheckResult {
  /// A note says what the engine cannot do, which keeps no job from running.
  enum class Level { ok, note, warning, error } level = Level::ok;
  std::string what;  ///< "GPUs"
  std::string found; ///< "none: jobs run on the CPU"
};

} // namespace dtrain
