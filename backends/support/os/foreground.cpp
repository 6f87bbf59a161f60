#include "backends/support/os/foreground.h"

#include "backends/support/os/spawn.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace dtrain {

int run_in_foreground(const std::vector<std::string>& argv) {
  constexpr int k_signal_base = 128;
  const pid_t child = spawn({.argv = argv, .in = STDIN_FILENO, .out = STDOUT_FILENO});
  signal(SIGINT, SIG_IGN); // The program's to take.
  signal(SIGQUIT, SIG_IGN);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? k_signal_base + WTERMSIG(status) : WEXITSTATUS(status);
}

} // namespace dtrain
