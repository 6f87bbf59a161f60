// Collectives on a modelled network: how long a schedule takes on 2 or 256 ranks, without them.
//
// A discrete-event simulation. A schedule is a list of transfers, each with those that must have
// arrived before it may start; the network is a port for sending and one for receiving
//   - a rank, for traffic inside its host, and
//   - a host, for traffic between hosts (its network interface, shared by its ranks).
// A transfer of b bytes holds the sender's port for b / bandwidth, its head reaches the receiver
// `latency` later and holds the receiving port for b / bandwidth; ports serve in the order of
// arrival. What arrives to be added is added at `reduce_bandwidth`, by one core a rank.
// Nothing depends on the clock or on chance: the same input gives the same time.
//
// The schedules, in the words of communicator.h, S bytes and n ranks, B the bandwidth:
//   ring           reduce-scatter, all-gather: 2(n-1) steps of a chunk S/n, cut into segments that
//                  are forwarded as they arrive. 2(n-1)/n·S/B + O(n·latency).
//   direct         every rank sends the whole buffer round the ring and adds all up: n-1 steps of
//   S.
//                  For short buffers, where latency counts, half the steps.
//   tree           binomial reduction to rank 0 and broadcast: 2·log2(n)·(S/B + latency).
//   hierarchical   ring reduce-scatter inside each host, a ring between hosts for each share, ring
//                  all-gather inside. 2(h-1) slow steps instead of 2(n-1), h hosts, but the
//                  host's inner traffic is not hidden.
//   parameter_server  n workers push S to p servers on hosts of their own, S/p each, and pull it
//                  back, bucket by bucket: n/p·S/B a direction, linear in n.
//
// Cost: O(T log T) for T transfers; the ring has 2n(n-1)·segments of them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace trainer {

struct Link {
  double latency = 0;   ///< Seconds.
  double bandwidth = 0; ///< Bytes a second, in each direction.
};

struct Network {
  int ranks = 1;
  int ranks_per_host = 1;
  Link inside{};               ///< Between ranks of a host.
  Link between{};              ///< Of each host.
  double reduce_bandwidth = 0; ///< Bytes added a second; 0: adding takes no time.

  int hosts() const { return (ranks + ranks_per_host - 1) / ranks_per_host; }
};

struct Transfer {
  int from = 0;
  int to = 0;
  double bytes = 0;
  bool add = false;                 ///< The receiver adds it to what it has.
  std::vector<std::size_t> after{}; ///< Earlier transfers, by place in the list.
};

enum class Schedule { ring, direct, tree, hierarchical, parameter_server };

std::string_view schedule_name(Schedule schedule);

struct ScheduleOptions {
  int segments = 4; ///< That a ring's chunk is cut into; buckets for the parameter server.
  int servers = 1;  ///< Parameter servers, besides network.ranks workers.
};

/// Throws UsageError for fewer than one rank, rank a host, segment or server, a bandwidth of 0
/// where there is traffic, or for `hierarchical` where the hosts have unequal numbers of ranks.
std::vector<Transfer> make_schedule(Schedule schedule, const Network& network, double bytes,
                                    const ScheduleOptions& options = {});

/// Seconds from the start, when every rank may send, to the last arrival.
double simulate(const Network& network, const std::vector<Transfer>& transfers);

/// Both: seconds that an all-reduce of `bytes` takes. For the parameter server, a push and a pull.
double simulate(Schedule schedule, const Network& network, double bytes,
                const ScheduleOptions& options = {});

} // namespace trainer
