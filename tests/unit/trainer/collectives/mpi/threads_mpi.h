// An MPI whose ranks are threads of this process, for tests: what the plug-in's table offers, with
// the rule that operations of a communicator are matched in the order in which they are started.
#pragma once

#include <memory>

#include "trainer/collectives/mpi/mpi.h"

namespace trainer::test {

/// Of one at a time.
class ThreadsMpi {
 public:
  explicit ThreadsMpi(int ranks);
  ~ThreadsMpi();

  /// Of this thread, which is from now on that rank.
  static std::unique_ptr<Mpi> join(int rank);
};

} // namespace trainer::test
