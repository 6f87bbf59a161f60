// Collectives between ranks that share memory.
//
// Registered buffers are reduced in place: a buffer is cut into blocks, and once all ranks have
// started the collective, a rank that waits for it takes the next block, reads it from every rank's
// buffer, and writes the sum to every rank's buffer. Ranks that are still busy elsewhere are
// served by those that wait. An all-reduce of S bytes over n ranks reads nS and writes nS in all.
//
// Ordinary buffers pass through staging slots, piece by piece, in three stages that overlap:
//   A  copy the chunks that others will reduce into this rank's slot   (n-1)/n S
//   B  reduce this rank's chunk from all slots, and leave the sum in the slot
//   C  copy the others' sums out                                       (n-1)/n S
// Short ones, and all between two ranks, are copied whole, and every rank adds all up: more bytes
// moved, but one synchronisation instead of two, and a rank can run ahead by all its slots.
//
// A reduce_scatter of ordinary buffers is A and B alone, in segments of every chunk at once; an
// all_gather is A of a rank's own chunk, and C. Of registered ones, only a chunk's owner is written
// to, or read.
//
// Who waits spins for a moment and then sleeps on a futex in the shared file; with more ranks than
// cores it sleeps almost at once.
#pragma once

#include <memory>

#include "trainer/collectives/transport.h"
#include "trainer/job/health.h"
#include "trainer/job/host_group.h"

namespace trainer {

/// For a group with at least two members.
std::unique_ptr<Transport> make_shared_memory(HostGroup group, int rank, Health& health);

} // namespace trainer
