#include "backends/support/os/process.h"

#include "backends/support/os/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

extern "C" { // glibc 2.36's header forgets it.
#include <sys/pidfd.h>
}

#include <array>
#include <charconv>
#include <cstdlib>
#include <string>

namespace dtrain {

namespace {

std::optional<pid_t> parse_pid(const char* text) {
  const std::string_view view(text);
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), pid);
  if (error != std::errc() || end != view.data() + view.size() || pid <= 0) {
    return std::nullopt;
  }
  return pid;
}

/// Appends the children of `pid`. False where the kernel does not list them.
bool children_of(pid_t pid, std::vector<pid_t>& found) {
  const Fd tasks(
      open(fmt::format("/proc/{}/task", pid).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!tasks) {
    return true; // It has ended.
  }
  bool listed = true;
  for_each_entry(tasks.get(), [&](const char* task) {
    const Fd file(
        openat(tasks.get(), fmt::format("{}/children", task).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) {
      struct stat info {};
      listed = listed && fstatat(tasks.get(), task, &info, 0) != 0;
      return;
    }
    std::string text;
    std::array<char, 4096> block{};
    ssize_t count = 0;
    while ((count = read(file.get(), block.data(), block.size())) > 0) {
      text.append(block.data(), static_cast<std::size_t>(count));
    }
    for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
      pid_t child = 0;
      const auto [next, error] = std::from_chars(at, end, child);
      if (error != std::errc()) {
        break;
      }
      found.push_back(child);
      at = next;
    }
  });
  return listed;
}

/// Kernels without CONFIG_PROC_CHILDREN: every process's parent is looked at.
std::vector<ProcessInfo> descendants_by_scan(pid_t root) {
  std::vector<ProcessInfo> all;
  const Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for_each_entry(proc.get(), [&](const char* name) {
    if (const auto pid = parse_pid(name)) {
      if (const auto info = read_process(*pid)) {
        all.push_back(*info);
      }
    }
  });
  std::vector<pid_t> parents{root};
  std::vector<ProcessInfo> found;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    for (const auto& info : all) {
      if (info.parent == parents[i]) {
        parents.push_back(info.id.pid);
        if (!info.zombie) {
          found.push_back(info);
        }
      }
    }
  }
  return found;
}

} // namespace

std::optional<ProcessInfo> read_process(pid_t pid) {
  const Fd file(open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    return std::nullopt;
  }
  std::array<char, 1024> text{};
  const auto count = read(file.get(), text.data(), text.size() - 1);
  if (count <= 0) {
    return std::nullopt;
  }
  // The second field is the program's name in parentheses, which may hold anything.
  const std::string_view line(text.data(), static_cast<std::size_t>(count));
  auto at = line.rfind(')');
  if (at == std::string_view::npos || at + 2 >= line.size()) {
    return std::nullopt;
  }
  at += 2;
  ProcessInfo info;
  info.id.pid = pid;
  info.zombie = line[at] == 'Z' || line[at] == 'X';
  constexpr int k_parent = 4;
  constexpr int k_group = 5;
  constexpr int k_session = 6;
  constexpr int k_start_time = 22;
  for (int field = 3; field < k_start_time; ++field) {
    at = line.find(' ', at);
    if (at == std::string_view::npos) {
      return std::nullopt;
    }
    ++at;
    const char* from = line.data() + at;
    const char* to = line.data() + line.size();
    if (field + 1 == k_parent) {
      std::from_chars(from, to, info.parent);
    } else if (field + 1 == k_group) {
      std::from_chars(from, to, info.group);
    } else if (field + 1 == k_session) {
      std::from_chars(from, to, info.session);
    } else if (field + 1 == k_start_time) {
      std::from_chars(from, to, info.id.start_time);
    }
  }
  return info;
}

ProcessId this_process() {
  const auto info = read_process(getpid());
  return info ? info->id : ProcessId{getpid(), 0};
}

bool is_running(ProcessId process) {
  if (process.pid <= 0) {
    return false;
  }
  const auto info = read_process(process.pid);
  return info && info->id == process && !info->zombie;
}

Fd open_process(ProcessId process) {
  if (process.pid <= 0) {
    return {};
  }
  // Opened first and compared then: the descriptor stays with the process that was compared.
  Fd descriptor(pidfd_open(process.pid, 0));
  if (!descriptor || !is_running(process)) {
    return {};
  }
  return descriptor;
}

bool signal_process(ProcessId process, int signal) {
  const Fd descriptor = open_process(process);
  return descriptor && pidfd_send_signal(descriptor.get(), signal, nullptr, 0) == 0;
}

std::vector<ProcessInfo> descendants(pid_t root) {
  std::vector<pid_t> pids;
  if (!children_of(root, pids)) {
    return descendants_by_scan(root);
  }
  std::vector<ProcessInfo> found;
  for (std::size_t i = 0; i < pids.size(); ++i) {
    children_of(pids[i], pids);
    if (const auto info = read_process(pids[i]); info && !info->zombie) {
      found.push_back(*info);
    }
  }
  return found;
}

void reset_signals() {
  signal(SIGCHLD, SIG_DFL);
  signal(SIGALRM, SIG_DFL);
  signal(SIGXFSZ, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

rlimit raise_file_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return limit;
}

bool has_variable(pid_t pid, std::string_view entry) {
  std::optional<std::string> environment;
  try {
    environment = read_file_at(AT_FDCWD, fmt::format("/proc/{}/environ", pid));
  } catch (const std::exception&) {
    return false; // Ended, or not ours to read.
  }
  const auto at = environment ? environment->find(entry) : std::string::npos;
  const bool starts = at == 0 || (at != std::string::npos && (*environment)[at - 1] == '\0');
  const auto end = at + entry.size();
  return starts && (end == environment->size() || (*environment)[end] == '\0');
}

std::vector<ProcessId> processes_with_environment(std::string_view entry) {
  std::vector<ProcessId> found;
  const Fd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for_each_entry(proc.get(), [&](const char* name) {
    const auto pid = parse_pid(name);
    struct stat info {};
    if (!pid || *pid == getpid() || fstatat(proc.get(), name, &info, 0) != 0 ||
        info.st_uid != geteuid()) {
      return;
    }
    const auto process = read_process(*pid);
    if (process && !process->zombie && has_variable(*pid, entry)) {
      found.push_back(process->id);
    }
  });
  return found;
}

} // namespace dtrain
