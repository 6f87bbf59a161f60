// Communicators between replicas that are threads of one process: a collective reads and writes the
// replicas' buffers in place.
//
// all_reduce, S bytes and n replicas:
//   shares            every replica sums its 1/n of all buffers and writes the sum to all: S read
//                     and S written a replica, all at once
//   reduction_to_one  replica 0 sums all buffers, the others copy its own: (n+1)·S moved by one,
//                     then S by each
//   hierarchical_copy a binary tree: in log2(n) levels one of each pair adds the other's buffer,
//                     then the sum is copied back down
// reduce_scatter: every replica sums its own chunk, in the same order, and writes it to its own
// buffer alone; all_gather: every replica writes its own chunk to all.
// All give every replica the same bits (automatic, and nccl, which is of GPUs, are shares here);
// the tree's order of addition is another than the others'.
//
// Collectives that were started are carried out at the first wait(), as many as all replicas have
// started by then.
// When a replica fails, the others' collectives throw PeerError with what it failed of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"

namespace trainer {

enum class CrossDeviceOps { automatic, shares, reduction_to_one, hierarchical_copy, nccl };

class InProcessGroup {
 public:
  InProcessGroup(int replicas, CrossDeviceOps ops);
  ~InProcessGroup();

  /// Of one replica, for use by one thread. Must not outlive the group.
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
