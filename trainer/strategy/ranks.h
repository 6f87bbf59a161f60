// The ranks of this process, one per device. A rank is a run's only one, one of several replicas of
// this process, one of several workers, or a replica of one of several workers.
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
  Cluster cluster;                                ///< Of this process.
  std::vector<std::string> devices = {"auto"};    ///< For make_device(); a thread each.
  CrossDeviceOps ops = CrossDeviceOps::automatic; ///< Between replicas of one process.
  CommOptions comm;

  int replicas() const { return static_cast<int>(devices.size()); }
};

struct Rank {
  Cluster cluster; ///< As this rank sees it: each replica counts as a rank.
  Device& device;
  Communicator& communicator;
  std::string placement = {}; ///< "on the CPUs of NUMA node 1", a GPU's; empty: anywhere.
};

/// Rank::placement of the calling thread, which is bound to it.
std::string place_near(Device& device, const CommOptions& options);

/// Connects the workers (with NCCL too if every rank has a GPU and --transport does not ask for
/// another), calls `prepare` once, then `body` once per rank, each in its own thread, on the CPUs
/// near its GPU (device/numa.h). If a rank
/// fails, reports it to the peers and throws what the first failed rank threw.
void run_ranks(const RankOptions& options, const std::function<void()>& prepare,
               const std::function<void(const Rank&)>& body);

} // namespace trainer
