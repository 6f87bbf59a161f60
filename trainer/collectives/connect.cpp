#include "trainer/collectives/connect.h"

#include <numeric>

#include <fmt/format.h>

#include "trainer/collectives/background.h"
#include "trainer/collectives/hosts.h"
#include "trainer/collectives/job_communicator.h"
#include "trainer/collectives/mpi/mpi.h"
#include "trainer/collectives/shared_memory/shared_arena.h"
#include "trainer/collectives/shared_memory/shared_memory.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/collectives/tcp/ring.h"
#include "trainer/errors.h"
#include "trainer/job/health.h"
#include "trainer/job/host_group.h"

namespace trainer {

std::unique_ptr<Communicator> connect(const Cluster& given, const CommOptions& options) {
  if (options.communication == CommOptions::Communication::mpi) {
    return connect_mpi(given, options);
  }
  if (given.world_size == 1) {
    return make_single_rank();
  }
  Cluster cluster = given;
  const Fd held = cluster.master_port == 0 ? agree_where_to_meet(cluster) : Fd();
  return connect_ranks(Star(cluster, options), cluster.job_token, options);
}

std::unique_ptr<Communicator> connect_ranks(Star star, const std::string& job_token,
                                            const CommOptions& options) {
  HostGroup group;
  if (options.transport != CommOptions::Transport::tcp) {
    group = find_host_group(star, options.host_identity, SharedArena::size);
  }
  const auto n = static_cast<std::size_t>(star.world_size());
  const bool share = group.members.size() == n;
  if (options.transport == CommOptions::Transport::shared_memory && !share) {
    throw ClusterError(fmt::format(
        "{} ranks do not all share this host's memory; use --transport=tcp or auto", n));
  }
  const bool is_mixed = !share && !group.leaders.empty() && group.leaders.size() < n;
  std::vector<RingLinks> links;
  if (!share) {
    std::vector<int> members = group.leaders;
    if (!is_mixed) {
      members.resize(n);
      std::iota(members.begin(), members.end(), 0);
    }
    links = link_ring(star, members, job_token, options.peer_timeout, options.tcp_streams);
  }
  const int rank = star.rank();
  auto health = std::make_unique<Health>(rank, star.who(), star.release_links(), options);
  auto transport =
      share      ? make_shared_memory(std::move(group), rank, *health)
      : is_mixed ? make_background(make_hosts(std::move(group), std::move(links), rank, *health))
                 : make_background(make_ring(std::move(links), *health));
  std::string description = fmt::format("{}, {} ranks", transport->describe(), n);
  return make_job_communicator(rank, star.world_size(), std::move(health), std::move(transport),
                               std::move(description));
}

} // namespace trainer
