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
  double seconds = 0; ///< From the start of all until its end.
};

/// Runs every rank in a process. Those still there when the ones not in `stopped` have ended are
/// killed and reported with their signal.
std::vector<Ended> run_processes(int world_size, const CommOptions& options,
                                 const std::function<void(Communicator&)>& body,
                                 const std::vector<int>& stopped = {});

} // namespace trainer::test
