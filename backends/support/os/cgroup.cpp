#include "backends/support/os/cgroup.h"

#include "backends/support/os/fd.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/options/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace dtrain {

namespace {

constexpr const char* k_procs = "cgroup.procs";
constexpr const char* k_kill = "cgroup.kill";      ///< Version 2, since Linux 5.14.
constexpr const char* k_freezer = "freezer.state"; ///< Version 1.

std::string text_of_file(const std::string& path) {
  try {
    return read_file_at(AT_FDCWD, path).value_or("");
  } catch (const Error&) {
    return {};
  }
}

bool write_text(const std::string& path, std::string_view text) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && write_all(file.get(), text);
}

/// This process's own group in the hierarchy of a controller; empty: version 2's.
std::string own_path(std::string_view controller) {
  std::istringstream lines(text_of_file("/proc/self/cgroup")); // "6:freezer:/path", "0::/path"
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const auto names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? names == ",,"
                           : names.find(fmt::format(",{},", controller)) != std::string::npos) {
      return line.substr(second + 1);
    }
  }
  return {};
}

/// The folder of that group, as it is mounted here; empty where it is not.
std::string own_folder(std::string_view controller) {
  const auto path = own_path(controller);
  // "36 25 0:30 ROOT MOUNTPOINT OPTIONS … - cgroup2 SOURCE SUPER-OPTIONS"
  std::istringstream lines(text_of_file("/proc/self/mountinfo"));
  for (std::string line; !path.empty() && std::getline(lines, line);) {
    std::istringstream words(line);
    std::string skipped;
    std::string root;
    std::string mount_point;
    words >> skipped >> skipped >> skipped >> root >> mount_point;
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) {
      continue;
    }
    std::string type;
    std::string options;
    std::istringstream(line.substr(dash + 3)) >> type >> skipped >> options;
    const bool fits =
        controller.empty()
            ? type == "cgroup2"
            : type == "cgroup" &&
                  ("," + options + ",").find(fmt::format(",{},", controller)) != std::string::npos;
    if (fits) {
      const bool below = root != "/" && path.starts_with(root);
      return mount_point + (below ? path.substr(root.size()) : path);
    }
  }
  return {};
}

} // namespace

std::optional<Cgroup> Cgroup::make(const std::string& name, std::string& problem) {
  const char* const chosen = environment::k_cgroups.value();
  const std::string_view tried = chosen == nullptr ? "" : chosen;
  for (const std::string_view controller : {"", "freezer", "pids", "name=systemd"}) {
    if (tried == "none" || (tried == "v2" && !controller.empty()) ||
        (tried == "v1" && controller.empty())) {
      continue;
    }
    const auto parent = own_folder(controller);
    const auto path = fmt::format("{}/{}", parent, name);
    if (!parent.empty() && mkdir(path.c_str(), 0755) == 0) {
      return Cgroup(path);
    }
    if (!parent.empty() && problem.empty()) {
      problem = fmt::format("cannot make a control group in {}: {}", parent, errno_text());
    }
  }
  return std::nullopt;
}

pid_t Cgroup::fork() const {
  // Born inside: to move a process takes the kernel some 10 ms.
  if (const Fd folder(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      folder && !k_only_fork_is_known) {
    clone_args args{};
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = SIGCHLD;
    args.cgroup = static_cast<std::uint64_t>(folder.get());
    if (const auto pid = syscall(SYS_clone3, &args, sizeof(args)); pid >= 0) {
      return static_cast<pid_t>(pid);
    }
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    write_text(path_ + "/" + k_procs, "0"); // Version 1.
  }
  return pid;
}

std::vector<ProcessId> Cgroup::kill() const {
  // So that nothing forks meanwhile.
  const bool frozen = write_text(path_ + "/" + k_freezer, "FROZEN");
  std::vector<ProcessId> found;
  std::istringstream lines(text_of_file(path_ + "/" + k_procs));
  for (pid_t pid = 0; lines >> pid;) {
    if (const auto process = read_process(pid)) { // 0: in a namespace above ours.
      ::kill(pid, SIGKILL);
      // Otherwise only its first thread has ended: the state of the others is unknown.
      if (!process->zombie) {
        found.push_back(process->id);
      }
    }
  }
  write_text(path_ + "/" + k_kill, "1");
  static_cast<void>(frozen && write_text(path_ + "/" + k_freezer, "THAWED"));
  return found;
}

void Cgroup::remove() const { rmdir(path_.c_str()); }

} // namespace dtrain
