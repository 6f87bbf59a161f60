#include "backends/support/os/foreground.h"

#include "backends/support/os/spawn.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dtrain {

int wait_in_foreground(pid_t child) {
  constexpr int k_signal_base = 128;
  signal(SIGINT, SIG_IGN); // The program's to take.
  signal(SIGQUIT, SIG_IGN);
  const int status = wait_for_child(child);
  return WIFSIGNALED(status) ? k_signal_base + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_in_foreground(const std::vector<std::string>& argv) {
  return wait_in_foreground(spawn({.argv = argv, .in = STDIN_FILENO, .out = STDOUT_FILENO}));
}

} // namespace dtrain
