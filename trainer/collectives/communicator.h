// Collectives between the ranks of a job.
//
// Words used here and in every implementation, in this sense only:
//   rank, world size   as in Cluster
//   range, buffer      the values that a collective works on: as many of the same type on every
//                      rank (range.h); bytes too, where nothing is added up
//   bucket             gradients that are all-reduced together
//   chunk              a range's share of one rank, 1/n of it: what a rank reduces or owns
//   segment            part of a chunk: what is sent, received and reduced in one go
//   registered         memory from allocate(), which other ranks of this host may read in place
//
// Every rank calls the same collectives with the same lengths in the same order; where they differ,
// all of them throw PeerError naming both. Chunk c is summed in the ring's order, ranks c+1, c+2,
// …, c, over shared memory as over TCP; where several hosts hold several ranks each, first those of
// a host and then the hosts, in the same way. So every rank holds the same bits, and a run can be
// repeated. Sums of fp64 are added up in it; those of 16 bits two at a time in float32, and rounded
// after each (wire.h).
//
// A communicator that is destroyed while an exception passes reports to the peers that this rank
// gave up, with give_up()'s reason; otherwise it says goodbye. Not thread-safe: one thread
// makes all calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/cluster/cluster.h"
#include "trainer/collectives/collective.h"
#include "trainer/errors.h"
#include "trainer/job/options.h"

namespace trainer {

class Stream;

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const noexcept = 0;
  virtual int world_size() const noexcept = 0;

  /// "rank 2 (host-b, pid 123)", for messages.
  virtual std::string name(int rank) const = 0;

  /// A description for the startup line: "ring over TCP, 3 ranks".
  virtual std::string describe() const = 0;

  /// How it would all-reduce a registered buffer of so many bytes of float32.
  virtual Route route(std::size_t bytes, WireType wire) const = 0;

  /// Registered memory: `count` floats, zeroed, 64-byte aligned, as long-lived as the communicator.
  /// A collective: every rank calls it with the same count.
  virtual std::span<float> allocate(std::size_t count) = 0;
  /// The same, in the memory of the device that this communicator serves. A collective on it starts
  /// after the work queued on the device's stream.
  virtual std::span<float> allocate_on_device(std::size_t count) { return allocate(count); }
  /// Collectives may be of this memory of the device, too, which is not registered. It lives until
  /// all that was started on it is done.
  virtual void use_on_device(std::span<float> /*memory*/) {}

  /// A collective in place, started here and finished by wait(): other work may go on in between.
  /// Its memory must not be touched or freed before wait() returns; registered memory is safe even
  /// where an exception comes between. Tickets are waited for in the order they were started.
  using Ticket = std::uint64_t;
  virtual Ticket start(Collective collective) = 0;
  virtual void wait(Ticket ticket) = 0;
  /// Work queued on the device's `stream` from now on comes after it. On the host's device work
  /// runs at once, so the caller waits.
  virtual void wait_in(Stream& /*stream*/, Ticket ticket) { wait(ticket); }
  /// Started and waited for.
  virtual void carry_out(Collective collective) { wait(start(std::move(collective))); }

  /// An all_reduce, reduce_scatter or all_gather. With a 16-bit `wire` float32 is rounded as wire.h
  /// says. Throws Error for a sum of bytes.
  Ticket start(Collective::Kind kind, Range range, std::string_view name,
               WireType wire = WireType::fp32) {
    Collective collective{kind, range, 0, std::string(name), wire};
    check_types(collective);
    return start(std::move(collective));
  }
  Ticket start_all_reduce(Range range, std::string_view name, WireType wire = WireType::fp32) {
    return start(Collective::Kind::all_reduce, range, name, wire);
  }
  Ticket start_reduce_scatter(Range range, std::string_view name, WireType wire = WireType::fp32) {
    return start(Collective::Kind::reduce_scatter, range, name, wire);
  }
  Ticket start_all_gather(Range range, std::string_view name, WireType wire = WireType::fp32) {
    return start(Collective::Kind::all_gather, range, name, wire);
  }

  /// Sum over ranks, in place.
  void all_reduce(Range range, std::string_view name) {
    Collective collective{Collective::Kind::all_reduce, range, 0, std::string(name)};
    check_types(collective);
    carry_out(std::move(collective));
  }
  /// Copies root's values to every rank.
  void broadcast(Range range, int root, std::string_view name) {
    carry_out({Collective::Kind::broadcast, range, root, std::string(name)});
  }
  void barrier(std::string_view name) {
    carry_out({Collective::Kind::barrier, {}, 0, std::string(name)});
  }

  /// Not a collective: throws PeerError if a peer is known to be lost. For use while waiting for
  /// something other than peers; with connect()'s communicators, from any thread.
  virtual void check() {}

  /// For a collective carried out elsewhere: counted and timed as if it began and ended here.
  virtual std::uint64_t begin_elsewhere(const Collective& /*collective*/) { return 0; }
  virtual void end_elsewhere(std::uint64_t /*number*/) {}

  /// Tells the heartbeat how far this rank is, for what its peers say if it dies.
  virtual void set_step(std::int64_t step) noexcept = 0;

  /// This rank is about to fail with `why`, which its peers then report as the cause.
  virtual void give_up([[maybe_unused]] const std::string& why) noexcept {}

  /// Seconds this rank has spent waiting in collectives.
  virtual double seconds_waiting() const noexcept = 0;
};

struct CommOptions : JobOptions {
  /// What carries collectives. Automatic is the ring; so is NCCL here, which strategy/ranks.h puts
  /// beside it.
  enum class Communication { automatic, ring, nccl, mpi } communication = Communication::automatic;
  enum class Transport {
    automatic,
    shared_memory,
    tcp
  } transport = Transport::automatic; ///< The ring's.
  int tcp_streams = 0; ///< Connections to a neighbour that long buffers share; 0: ring.h chooses.
};

/// Meets the other ranks at the cluster's master address and connects. With one rank it does
/// nothing and needs no address. Every later call throws PeerError when a peer is lost.
std::unique_ptr<Communicator> connect(const Cluster& cluster, const CommOptions& options);

/// Calls `body`; if it throws, reports the error to the peers.
template <typename Body>
auto telling_peers(Communicator& communicator, const Body& body) {
  try {
    return body();
  } catch (const PeerError&) {
    throw; // The peers know already.
  } catch (const std::exception& error) {
    communicator.give_up(error.what());
    throw;
  }
}

} // namespace trainer
