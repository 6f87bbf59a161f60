#include "backends/local/exec.h"

#include "backends/support/os/argv.h"
#include "backends/support/os/fd.h"
#include "backends/support/os/files.h"
#include "backends/support/os/foreground.h"
#include "backends/support/os/split_at_nul.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

namespace dtrain {

namespace {

constexpr int k_no_program = 127;

/// Whether the instance's mounts differ from ours, as they do when the job mounts data.
bool has_other_mounts(int folder) {
  struct stat mine {};
  struct stat its {};
  return stat("/proc/self/ns/mnt", &mine) == 0 && fstatat(folder, "ns/mnt", &its, 0) == 0 &&
         mine.st_ino != its.st_ino;
}

/// The variables of a rank's program; empty: it has ended. Between its fork and its program a rank
/// is a copy of the supervisor, with neither the job's mounts nor its environment yet, and as
/// execve() begins it is the program, whose environment is still empty. Its program may be dtrain
/// too: then this is a second's pause.
std::string environment_of(int folder) {
  constexpr auto k_longest = std::chrono::seconds(1);
  constexpr auto k_pause = std::chrono::milliseconds(2);
  const auto deadline = std::chrono::steady_clock::now() + k_longest;
  struct stat mine {};
  struct stat its {};
  while (stat("/proc/self/exe", &mine) == 0 && fstatat(folder, "exe", &its, 0) == 0 &&
         std::chrono::steady_clock::now() < deadline) {
    if (mine.st_dev != its.st_dev || mine.st_ino != its.st_ino) {
      if (auto environment = read_file_at(folder, "environ");
          environment && !environment->empty()) {
        return *environment;
      }
    }
    std::this_thread::sleep_for(k_pause);
  }
  return read_file_at(folder, "environ").value_or("");
}

[[noreturn]] void run(int folder, std::vector<std::string> command, std::vector<std::string> env) {
  const Fd cwd(openat(folder, "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Fd root(openat(folder, "root", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (has_other_mounts(folder)) {
    const Fd mounts(openat(folder, "ns/mnt", O_RDONLY | O_CLOEXEC));
    if (!mounts || setns(mounts.get(), CLONE_NEWNS) != 0 || fchdir(root.get()) != 0 ||
        chroot(".") != 0) {
      std::fprintf(stderr, "dtrain: cannot enter the job's mounts: %s\n", errno_text().c_str());
      _exit(EXIT_FAILURE);
    }
  }
  if (fchdir(cwd.get()) != 0) {
    std::fprintf(stderr, "dtrain: the job's folder is gone; running in %s instead\n",
                 std::filesystem::current_path().c_str());
  }
  signal(SIGXFSZ, SIG_DFL); // As in every other process.
  auto envp = argv_of(env);
  auto argv = argv_of(command);
  environ = envp.data();
  execvp(argv[0], argv.data());
  std::fprintf(stderr, "dtrain: cannot run %s: %s\n", argv[0], errno_text().c_str());
  _exit(k_no_program);
}

} // namespace

int exec_beside(pid_t process, const std::vector<std::string>& command) {
  const Fd folder(
      open(fmt::format("/proc/{}", process).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::string environment = folder ? environment_of(folder.get()) : "";
  if (environment.empty()) {
    throw EngineError("it has ended, so there is nothing to exec into");
  }
  const pid_t child = fork();
  if (child < 0) {
    throw EngineError(fmt::format("cannot start a process: {}", errno_text()));
  }
  if (child == 0) {
    run(folder.get(), command, split_at_nul(environment));
  }
  return wait_in_foreground(child);
}

} // namespace dtrain
