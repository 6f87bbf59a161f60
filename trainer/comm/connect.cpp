#include "trainer/comm/communicator.h"

#include <numeric>

#include <fmt/format.h>

#include "trainer/comm/background.h"
#include "trainer/comm/health.h"
#include "trainer/comm/host_group.h"
#include "trainer/comm/hosts.h"
#include "trainer/comm/job_communicator.h"
#include "trainer/comm/rendezvous.h"
#include "trainer/comm/ring.h"
#include "trainer/comm/shared_memory.h"
#include "trainer/comm/single_rank.h"
#include "trainer/errors.h"

namespace trainer {

std::unique_ptr<Communicator> connect(const Cluster& cluster, const CommOptions& options) {
  if (cluster.world_size == 1) {
    return make_single_rank();
  }
  Star star(cluster, options);
  HostGroup group;
  if (options.transport != CommOptions::Transport::tcp) {
    group = find_host_group(star, options.host_identity);
  }
  const auto n = static_cast<std::size_t>(cluster.world_size);
  const bool share = group.members.size() == n;
  if (options.transport == CommOptions::Transport::shared_memory && !share) {
    throw ClusterError(fmt::format("{} ranks do not all share this host's memory: use --transport "
                                   "tcp or leave the choice open",
                                   n));
  }
  const bool is_mixed = !share && !group.leaders.empty() && group.leaders.size() < n;
  RingLinks links;
  if (!share) {
    std::vector<int> members = group.leaders;
    if (!is_mixed) {
      members.resize(n);
      std::iota(members.begin(), members.end(), 0);
    }
    links = link_ring(star, std::move(members), cluster.job_token, options.peer_timeout);
  }
  auto health = std::make_unique<Health>(cluster.rank, star.who(), star.release_links(),
                                         options.peer_timeout);
  auto transport =
      share ? make_shared_memory(std::move(group), cluster.rank, *health)
      : is_mixed
          ? make_background(make_hosts(std::move(group), std::move(links), cluster.rank, *health))
          : make_background(make_ring(std::move(links), *health));
  std::string description = fmt::format("{}, {} ranks", transport->describe(), n);
  return make_job_communicator(cluster.rank, cluster.world_size, std::move(health),
                               std::move(transport), std::move(description));
}

} // namespace trainer
