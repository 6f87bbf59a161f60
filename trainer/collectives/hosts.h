// Collectives between hosts of which some hold several ranks: within a host over shared memory,
// between the hosts over a TCP ring of their leaders, the first rank of each.
//
// all_reduce of S bytes over h hosts: each leader adds up what its host's ranks hold, the leaders
// all-reduce the hosts' sums, and each gives its host the result. Each host sends 2(h-1)/h S bytes,
// however many ranks it holds.
//
// reduce_scatter and all_gather are half of it between the hosts, (h-1)/h S bytes sent: a leader
// ends with, or brings, what its host's ranks own together, wherever their chunks lie. Within a
// host it gives each rank its own, or takes it from there.
#pragma once

#include <memory>

#include "trainer/collectives/tcp/ring.h"
#include "trainer/collectives/transport.h"
#include "trainer/job/host_group.h"

namespace trainer {

/// `links` connects the group's leaders; only they have connections.
std::unique_ptr<Carrier> make_hosts(HostGroup group, std::vector<RingLinks> links, int rank,
                                    Health& health);

} // namespace trainer
