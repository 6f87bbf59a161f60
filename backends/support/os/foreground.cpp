#include "backends/support/os/foreground.h"

#include "backends/support/os/argv.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace dtrain {

int end_of_child(pid_t child) {
  constexpr int k_signal_base = 128;
  signal(SIGINT, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? k_signal_base + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_in_foreground(const std::vector<std::string>& command) {
  constexpr int k_no_program = 127;
  std::vector<std::string> words = command;
  auto argv = argv_of(words);
  const pid_t child = fork();
  if (child < 0) {
    throw EngineError(fmt::format("cannot start a process: {}", errno_text()));
  }
  if (child == 0) {
    execvp(argv[0], argv.data());
    std::fprintf(stderr, "dtrain: cannot run %s: %s\n", argv[0], errno_text().c_str());
    _exit(k_no_program);
  }
  return end_of_child(child);
}

} // namespace dtrain
