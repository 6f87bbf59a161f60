#include "trainer/comm/communicator.h"

#include <numeric>

#include <fmt/format.h>

#include "trainer/comm/health.h"
#include "trainer/comm/job_communicator.h"
#include "trainer/comm/rendezvous.h"
#include "trainer/comm/ring.h"
#include "trainer/comm/single_rank.h"

namespace trainer {

std::unique_ptr<Communicator> connect(const Cluster& cluster, const CommOptions& options) {
  if (cluster.world_size == 1) {
    return make_single_rank();
  }
  Star star(cluster, options);
  std::vector<int> members(static_cast<std::size_t>(cluster.world_size));
  std::iota(members.begin(), members.end(), 0);
  RingLinks links = link_ring(star, std::move(members), cluster.job_token, options.peer_timeout);
  auto health = std::make_unique<Health>(cluster.rank, star.who(), star.release_links(),
                                         options.peer_timeout);
  auto transport = make_ring(std::move(links), *health);
  std::string description = fmt::format("{}, {} ranks", transport->describe(), cluster.world_size);
  return make_job_communicator(cluster.rank, cluster.world_size, std::move(health),
                               std::move(transport), std::move(description));
}

} // namespace trainer
