// Communicators between all replicas of all workers, where each worker is one process with a thread
// a replica: rank = worker · replicas + replica.
//
// all_reduce: the last replica of a worker to start it adds up the worker's buffers, in the order
// of replicas, into replica 0's, and starts the all-reduce between workers, so that backward goes
// on meanwhile. Who waits as replica 0 waits for that and hands the sum to the other replicas.
// Between the workers goes what one replica a worker would send. All ranks hold the same bits.
//
// reduce_scatter and all_gather are the same with the halves of it between the workers: of them a
// worker's chunk is those of its replicas together. Between replicas only their own chunks are
// copied, to them or from them. Broadcasts and barriers take their turn in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"

namespace trainer {

class WorkerGroup {
 public:
  /// `between` connects the workers; it outlives the group, which makes all calls while it lives.
  /// All workers have as many replicas.
  WorkerGroup(int replicas, Communicator& between);
  ~WorkerGroup();

  /// Of one replica of this worker, for use by one thread. Must not outlive the group.
  Communicator& communicator(int replica);

  /// A replica gives up: everyone waiting for it throws, now and later.
  void fail(int replica, const std::string& why) noexcept;

 private:
  struct State;
  class Member;
  std::unique_ptr<State> state_;
  std::vector<std::unique_ptr<Communicator>> members_;
};

} // namespace trainer
