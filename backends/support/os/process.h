// Processes named beyond doubt. A pid alone may be another process by now; a pid with its start
// time (field 22 of /proc/PID/stat, in clock ticks since boot) is one process for ever.
#pragma once

#include "backends/support/os/fd.h"

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_time = 0;

  bool operator==(const ProcessId&) const = default;
};

struct ProcessInfo {
  ProcessId id;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  bool zombie = false;
};

/// From /proc; empty if there is no such process.
std::optional<ProcessInfo> read_process(pid_t pid);

ProcessId this_process();

/// The sanitizers' runtimes have to know of a process that is made, and know of fork() alone.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool k_only_fork_is_known = true;
#else
inline constexpr bool k_only_fork_is_known = false;
#endif

/// True until it has ended; a zombie has.
bool is_running(ProcessId process);

/// A pidfd, readable when the process ends. Empty where it has ended.
Fd open_process(ProcessId process);

/// False where it has ended.
bool signal_process(ProcessId process, int signal);

/// All processes below `root`, without zombies. A process that forks meanwhile may be missed, so a
/// caller who wants none left repeats until it has no more children.
std::vector<ProcessInfo> descendants(pid_t root);

/// Sets signals as this program needs them, whatever its parent ignored or blocked: children can be
/// waited for, deadlines ring, and exceeding a file's size limit is an error of write(). Signals
/// ignored to survive a closed terminal (nohup) stay ignored.
void reset_signals();

/// Raises this process's limit of open files to its maximum; returns the old limit.
rlimit raise_file_limit();

/// True where the process was started with `entry` ("KEY=VALUE") in its environment.
bool has_variable(pid_t pid, std::string_view entry);

/// This user's processes with `entry` ("KEY=VALUE") in the environment they were started with.
std::vector<ProcessId> processes_with_environment(std::string_view entry);

} // namespace dtrain
