#include "trainer/strategy/ranks.h"

#include <memory>
#include <vector>

#include "trainer/collectives/agreement.h"
#include "trainer/collectives/device_communicator.h"

namespace trainer {

void run_ranks(const RankOptions& options, const std::function<void()>& prepare,
               const std::function<void(const Rank&)>& body) {
  const Cluster& cluster = options.cluster;
  const int replicas = options.replicas();
  std::vector<std::unique_ptr<Device>> devices; // Before anyone waits for this process.
  devices.reserve(static_cast<std::size_t>(replicas));
  for (const std::string& device : options.devices) {
    devices.push_back(make_device(device, cluster.local_rank));
  }
  const auto run = [&](Communicator& communicator) {
    const int replica = communicator.rank() % replicas;
    Cluster own = cluster;
    own.world_size *= replicas;
    own.local_world_size *= replicas;
    own.rank = communicator.rank();
    own.local_rank = cluster.local_rank * replicas + replica;
    Device& device = *devices[static_cast<std::size_t>(replica)];
    if (device.is_host()) {
      body({own, device, communicator});
    } else {
      DeviceCommunicator of_device(communicator, device);
      body({own, device, of_device});
    }
  };
  if (cluster.world_size == 1 && replicas > 1) {
    prepare();
    run_replicas(replicas, options.ops, run);
    return;
  }
  CommOptions comm = options.comm;
  comm.has_gpu = !devices.front()->is_host();
  const auto between = connect(cluster, comm);
  check_equal_replicas(replicas, *between);
  telling_peers(*between, [&] {
    prepare();
    replicas == 1 ? run(*between) : run_replicas(replicas, *between, run);
  });
}

} // namespace trainer
