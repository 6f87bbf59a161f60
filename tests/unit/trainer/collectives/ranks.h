// Ranks for tests: threads of this process, each with a communicator of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/job/socket.h"

namespace trainer::test {

/// A port that is held, bound but not listening, as a launcher holds it.
class HeldPort {
 public:
  HeldPort();
  int number() const { return number_; }

 private:
  Fd socket_;
  int number_ = 0;
};

Cluster cluster_of(int rank, int world_size, int port);

/// Runs every rank to its end; what each threw, "" if nothing, in rank order.
std::vector<std::string> run_ranks(int world_size, const CommOptions& options,
                                   const std::function<void(Communicator&)>& body);

/// The same, and fails the test if any threw.
void run_ranks_cleanly(int world_size, const CommOptions& options,
                       const std::function<void(Communicator&)>& body);

/// One rank for each host named, some of which are the same; what each threw.
std::vector<std::string> run_on_hosts(const std::vector<std::string>& hosts,
                                      const CommOptions& options,
                                      const std::function<void(Communicator&)>& body);

/// Runs one callable a rank in its own thread; what each threw.
std::vector<std::string> run_threads(const std::vector<std::function<void()>>& bodies);

CommOptions options_for(CommOptions::Transport transport);

} // namespace trainer::test
