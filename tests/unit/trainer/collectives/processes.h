// Ranks for tests that kill them: child processes, each with a communicator of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "ranks.h"

namespace trainer::test {

struct Ended {
  std::string thrown; ///< What the rank threw; "" if nothing.
  int status = 0;     ///< As waitpid() gives it; a rank that ended by itself has 0.
};

/// Ranks that run from its construction on, each in a process.
class Processes {
 public:
  Processes(int world_size, const CommOptions& options,
            const std::function<void(Communicator&)>& body);

  /// Waits for their end. Those still there when the ones not in `stopped` have ended are killed
  /// and reported with their signal.
  std::vector<Ended> end(const std::vector<int>& stopped = {});

 private:
  struct Child {
    pid_t pid = 0;
    Fd output;
  };
  HeldPort port_;
  std::vector<Child> children_;
};

} // namespace trainer::test
