#include "trainer/strategy/ranks.h"

#include <memory>
#include <vector>

#include "trainer/collectives/agreement.h"

namespace trainer {

void run_ranks(const RankOptions& options, const std::function<void()>& prepare,
               const std::function<void(const Rank&)>& body) {
  const Cluster& cluster = options.cluster;
  const int replicas = options.replicas;
  std::vector<std::unique_ptr<Device>> devices; // Before anyone waits for this process.
  devices.reserve(static_cast<std::size_t>(replicas));
  for (int replica = 0; replica < replicas; ++replica) {
    devices.push_back(make_device(options.device));
  }
  const auto run = [&](Communicator& communicator) {
    const int replica = communicator.rank() % replicas;
    Cluster own = cluster;
    own.world_size *= replicas;
    own.local_world_size *= replicas;
    own.rank = communicator.rank();
    own.local_rank = cluster.local_rank * replicas + replica;
    body({own, *devices[static_cast<std::size_t>(replica)], communicator});
  };
  if (cluster.world_size == 1 && replicas > 1) {
    prepare();
    run_replicas(replicas, options.ops, run);
    return;
  }
  const auto between = connect(cluster, options.comm);
  check_equal_replicas(replicas, *between);
  telling_peers(*between, [&] {
    prepare();
    replicas == 1 ? run(*between) : run_replicas(replicas, *between, run);
  });
}

} // namespace trainer
