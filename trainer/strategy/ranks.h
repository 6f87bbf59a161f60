// The ranks of this process, one a device: alone, replicas of one process, one of several workers,
// or a replica of one of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/cluster/cluster.h"
#include "trainer/collectives/communicator.h"
#include "trainer/device/device.h"
#include "trainer/strategy/mirrored.h"

namespace trainer {

struct RankOptions {
  Cluster cluster;                             ///< Of this process.
  std::vector<std::string> devices = {"auto"}; ///< As make_device() takes them: a thread each.
  std::string no_gpu = {}; ///< Why auto is the CPU here, as make_device() takes it.
  CrossDeviceOps ops = CrossDeviceOps::automatic; ///< Of one process' replicas.
  CommOptions comm;

  int replicas() const { return static_cast<int>(devices.size()); }
};

struct Rank {
  Cluster cluster; ///< Of this rank: its replicas counted.
  Device& device;
  Communicator& communicator;
};

/// Connects the workers, by NCCL too where every rank has a GPU and nothing else is asked for,
/// calls `prepare` once, and `body` once a rank, each in a thread of its own. Throws what the first
/// to fail threw, which the peers are told of.
void run_ranks(const RankOptions& options, const std::function<void()>& prepare,
               const std::function<void(const Rank&)>& body);

} // namespace trainer
