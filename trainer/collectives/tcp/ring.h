// Collectives over a ring of TCP connections: every rank sends to the next and receives from the
// one before, both at once.
//
// all_reduce of S bytes over n ranks: reduce-scatter, then all-gather, 2(n-1) steps of one chunk.
// In the first n-1, rank r receives chunk r-2, r-3, … and adds its own part, so that chunk r is
// complete at rank r; in the others the complete chunks go round. A step forwards what the step
// before received as it arrives, segment by segment, so that the steps overlap. Long chunks go
// slice by slice, all steps of a few slices before the next few: a slice that has been added up is
// sent, and its place overwritten, while it is still in the cache.
// Each rank sends 2(n-1)/n S bytes and adds (n-1)/n S.
//
// reduce_scatter and all_gather are the two halves of it alone: n-1 steps, (n-1)/n S bytes sent.
//
// A core copies to and from one connection slower than a fast network carries: between hosts,
// slices of long buffers are dealt out to several streams, connections with a thread each. Which
// rank adds what in which order stays the same, and so do the bits.
//
// Short buffers, where latency counts, go round whole in n-1 steps, and every rank adds all up:
// (n-1) S bytes sent.
//
// Each collective begins with a header of its number, kind, length and name, which the next rank
// compares with its own before it uses what follows.
#pragma once

#include <memory>
#include <vector>

#include "trainer/collectives/transport.h"
#include "trainer/job/health.h"
#include "trainer/job/rendezvous.h"

namespace trainer {

/// Connections to the neighbours in the ring of `members` (job ranks, in order).
struct RingLinks {
  std::vector<int> members;
  int position = 0; ///< Position of this rank in members.
  Fd next;
  Fd previous;
};

/// One link per stream. The number of streams is the least that any rank asks for, at least 1; 0
/// leaves it open: several between hosts, one within. Collective over all ranks of the star, also
/// those that are not members, which get links without connections. Throws PeerError.
std::vector<RingLinks> link_ring(Star& star, const std::vector<int>& members,
                                 const std::string& token, double peer_timeout, int streams);

/// Bytes of the longest buffer that goes round whole.
std::size_t longest_whole(int ranks);

std::unique_ptr<Carrier> make_ring(std::vector<RingLinks> streams, Health& health);

} // namespace trainer
