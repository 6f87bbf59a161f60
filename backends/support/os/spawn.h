// A child process, started from whatever this one blocks, ignores or has open.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace dtrain {

struct Spawn {
  std::vector<std::string> argv; ///< The program is looked for in PATH; no shell reads them.
  std::vector<std::pair<std::string, std::string>> env = {}; ///< Added to our environment.
  std::vector<std::string> without = {}; ///< Variables of ours that are not for it.
  std::string folder = {};               ///< Where it starts; empty: here.
  int in = -1;
  int out = -1;
  int err = -1;             ///< -1: ours.
  bool leads_group = false; ///< The terminal's signals are not for it.
};

/// Returns its pid. Throws EngineError: "git cannot be run: No such file or directory".
pid_t spawn(const Spawn& process);

/// Waits for a child's end; its status, as waitpid() has it.
int wait_for_child(pid_t pid);

} // namespace dtrain
