#include "backends/support/os/spawn.h"

#include "backends/support/os/argv.h"
#include "backends/support/os/files.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace dtrain {

namespace {

/// posix_spawn's two descriptions, gone with it.
struct SpawnPlan {
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};

  SpawnPlan() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

} // namespace

pid_t spawn(const Spawn& process) {
  SpawnPlan plan;
  posix_spawn_file_actions_adddup2(&plan.actions, process.in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&plan.actions, process.out, STDOUT_FILENO);
  if (process.err >= 0) {
    posix_spawn_file_actions_adddup2(&plan.actions, process.err, STDERR_FILENO);
  }
  if (!process.folder.empty()) {
    posix_spawn_file_actions_addchdir_np(&plan.actions, process.folder.c_str());
  }
  // The signals that we block or ignore are reset for it.
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&plan.attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  sigaddset(&signals, SIGCHLD);
  posix_spawnattr_setsigdefault(&plan.attributes, &signals);
  posix_spawnattr_setpgroup(&plan.attributes, 0);
  const int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                    (process.leads_group ? POSIX_SPAWN_SETPGROUP : 0);
  posix_spawnattr_setflags(&plan.attributes, static_cast<short>(flags));
  auto words = process.argv;
  auto variables = merge_environment(environ, process.env, process.without);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, words.at(0).c_str(), &plan.actions, &plan.attributes,
                                  argv_of(words).data(), argv_of(variables).data());
  if (failed != 0) {
    throw EngineError(fmt::format("{} cannot be run: {}", printable(words[0]), errno_text(failed)));
  }
  return pid;
}

int wait_for_child(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

} // namespace dtrain
