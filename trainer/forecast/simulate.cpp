#include "trainer/forecast/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

std::size_t as_index(int number) { return static_cast<std::size_t>(number); }

using After = std::vector<std::size_t>;

/// Collects transfers; each call gives the place of the one added.
class Draft {
 public:
  std::size_t add(int from, int to, double bytes, bool adds, After after) {
    transfers_.push_back({from, to, bytes, adds, std::move(after)});
    return transfers_.size() - 1;
  }
  std::vector<Transfer> take() { return std::move(transfers_); }

 private:
  std::vector<Transfer> transfers_;
};

/// One pass around a ring: n-1 steps in which the member at place p forwards to the next what it
/// received in the step before, cut into segments. ready[p][s] is what place p's first sending of
/// segment s waits for; the result is, in the same form, what arrived last at each place.
using Frontier = std::vector<std::vector<After>>;

Frontier nothing_pending(std::size_t members, int segments) {
  return Frontier(members, std::vector<After>(static_cast<std::size_t>(segments)));
}

Frontier go_around(Draft& draft, const std::vector<int>& members, double chunk, bool adds,
                   Frontier ready) {
  const std::size_t n = members.size();
  for (std::size_t step = 0; step + 1 < n; ++step) {
    Frontier arrived(n, std::vector<After>(ready.front().size()));
    for (std::size_t place = 0; place < n; ++place) {
      const std::size_t next = (place + 1) % n;
      for (std::size_t s = 0; s < ready[place].size(); ++s) {
        arrived[next][s] = {draft.add(members[place], members[next],
                                      chunk / static_cast<double>(ready[place].size()), adds,
                                      std::move(ready[place][s]))};
      }
    }
    ready = std::move(arrived);
  }
  return ready;
}

std::vector<int> every_nth(int first, int count, int stride) {
  std::vector<int> members(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    members[static_cast<std::size_t>(i)] = first + i * stride;
  }
  return members;
}

void draft_ring(Draft& draft, const Network& network, double bytes, int segments) {
  const auto members = every_nth(0, network.ranks, 1);
  const double chunk = bytes / network.ranks;
  auto ready = go_around(draft, members, chunk, true, nothing_pending(members.size(), segments));
  go_around(draft, members, chunk, false, std::move(ready));
}

void draft_direct(Draft& draft, const Network& network, double bytes) {
  const auto members = every_nth(0, network.ranks, 1);
  go_around(draft, members, bytes, false, nothing_pending(members.size(), 1));
}

void draft_tree(Draft& draft, const Network& network, double bytes) {
  const int n = network.ranks;
  std::vector<After> has(static_cast<std::size_t>(n));
  int reach = 1;
  for (; reach < n; reach *= 2) {
    for (int to = 0; to + reach < n; to += 2 * reach) {
      const int from = to + reach;
      auto& parts = has[static_cast<std::size_t>(to)];
      parts.push_back(draft.add(from, to, bytes, true, has[static_cast<std::size_t>(from)]));
    }
  }
  while ((reach /= 2) >= 1) {
    for (int from = 0; from + reach < n; from += 2 * reach) {
      const auto& parts = has[static_cast<std::size_t>(from)];
      has[as_index(from + reach)] = {draft.add(from, from + reach, bytes, false, parts)};
    }
  }
}

void draft_hierarchical(Draft& draft, const Network& network, double bytes, int segments) {
  const int local = network.ranks_per_host;
  const int hosts = network.hosts();
  const double share = bytes / local;
  std::vector<Frontier> ready(static_cast<std::size_t>(hosts));
  for (int host = 0; host < hosts; ++host) {
    ready[static_cast<std::size_t>(host)] =
        go_around(draft, every_nth(host * local, local, 1), share, true,
                  nothing_pending(static_cast<std::size_t>(local), segments));
  }
  for (int place = 0; place < local; ++place) {
    // A rank's chunk between hosts is complete when all of its share is.
    const auto members = every_nth(place, hosts, local);
    Frontier pending = nothing_pending(members.size(), segments);
    for (int host = 0; host < hosts; ++host) {
      After all;
      for (const After& part :
           ready[static_cast<std::size_t>(host)][static_cast<std::size_t>(place)]) {
        all.insert(all.end(), part.begin(), part.end());
      }
      std::fill(pending[static_cast<std::size_t>(host)].begin(),
                pending[static_cast<std::size_t>(host)].end(), all);
    }
    const double chunk = share / hosts;
    pending = go_around(draft, members, chunk, true, std::move(pending));
    pending = go_around(draft, members, chunk, false, std::move(pending));
    for (int host = 0; host < hosts; ++host) {
      ready[static_cast<std::size_t>(host)][static_cast<std::size_t>(place)] =
          std::move(pending[static_cast<std::size_t>(host)]);
    }
  }
  for (int host = 0; host < hosts; ++host) {
    go_around(draft, every_nth(host * local, local, 1), share, false,
              std::move(ready[static_cast<std::size_t>(host)]));
  }
}

/// Servers are ranks n, n+1, …, one a host.
void draft_parameter_server(Draft& draft, const Network& network, double bytes, int buckets,
                            int servers) {
  const double bucket = bytes / servers / buckets;
  std::vector<After> pushed(as_index(servers * buckets));
  for (int b = 0; b < buckets; ++b) {
    for (int worker = 0; worker < network.ranks; ++worker) {
      // Workers begin with different servers, so that no server has all of them at once.
      for (int i = 0; i < servers; ++i) {
        const int server = (worker + i) % servers;
        pushed[as_index(server * buckets + b)].push_back(
            draft.add(worker, network.ranks + server, bucket, true, {}));
      }
    }
  }
  for (int b = 0; b < buckets; ++b) {
    for (int worker = 0; worker < network.ranks; ++worker) {
      for (int i = 0; i < servers; ++i) {
        const int server = (worker + i) % servers;
        draft.add(network.ranks + server, worker, bucket, false,
                  pushed[as_index(server * buckets + b)]);
      }
    }
  }
}

/// A resource that serves one at a time, in the order of asking.
struct Port {
  double free = 0;
  double take(double from, double seconds) {
    free = std::max(free, from) + seconds;
    return free;
  }
};

class Simulation {
 public:
  Simulation(const Network& network, const std::vector<Transfer>& transfers)
      : network_(network), transfers_(transfers), waiting_for_(transfers.size()),
        followers_(transfers.size()) {
    int ranks = network.ranks;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      waiting_for_[i] = transfers[i].after.size();
      ranks = std::max({ranks, transfers[i].from + 1, transfers[i].to + 1});
      for (const std::size_t earlier : transfers[i].after) {
        followers_[earlier].push_back(i);
      }
    }
    ranks_ = std::vector<Rank>(static_cast<std::size_t>(ranks));
    hosts_ = std::vector<Ports>(static_cast<std::size_t>(host_of(ranks - 1)) + 1);
  }

  double run() {
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      if (waiting_for_[i] == 0) {
        events_.push({0, i, Stage::ready});
      }
    }
    double last = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      last = std::max(last, event.time);
      advance(event);
    }
    return last;
  }

 private:
  enum class Stage { ready, head_arrived, received, done };
  struct Event {
    double time;
    std::size_t transfer;
    Stage stage;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : transfer > other.transfer;
    }
  };
  struct Ports {
    Port out;
    Port in;
  };
  struct Rank {
    Ports inside;
    Port adder;
  };

  /// Ranks past the network's own (parameter servers) have a host each.
  int host_of(int rank) const {
    return rank < network_.ranks ? rank / network_.ranks_per_host
                                 : network_.hosts() + rank - network_.ranks;
  }

  void advance(const Event& event) {
    const Transfer& transfer = transfers_[event.transfer];
    const int from = host_of(transfer.from);
    const int to = host_of(transfer.to);
    const bool inside = from == to;
    const Link& link = inside ? network_.inside : network_.between;
    auto& receiver = ranks_[static_cast<std::size_t>(transfer.to)];
    const double seconds = transfer.bytes > 0 ? transfer.bytes / link.bandwidth : 0;
    switch (event.stage) {
    case Stage::ready: {
      auto& ports = inside ? ranks_[static_cast<std::size_t>(transfer.from)].inside
                           : hosts_[static_cast<std::size_t>(from)];
      const double sent = ports.out.take(event.time, seconds);
      events_.push({sent - seconds + link.latency, event.transfer, Stage::head_arrived});
      break;
    }
    case Stage::head_arrived: {
      auto& ports = inside ? receiver.inside : hosts_[static_cast<std::size_t>(to)];
      events_.push({ports.in.take(event.time, seconds), event.transfer, Stage::received});
      break;
    }
    case Stage::received: {
      const bool adds = transfer.add && network_.reduce_bandwidth > 0;
      const double added =
          adds ? receiver.adder.take(event.time, transfer.bytes / network_.reduce_bandwidth)
               : event.time;
      events_.push({added, event.transfer, Stage::done});
      break;
    }
    case Stage::done:
      for (const std::size_t follower : followers_[event.transfer]) {
        if (--waiting_for_[follower] == 0) {
          events_.push({event.time, follower, Stage::ready});
        }
      }
      break;
    }
  }

  const Network& network_;
  const std::vector<Transfer>& transfers_;
  std::vector<std::size_t> waiting_for_;
  std::vector<After> followers_;
  std::vector<Rank> ranks_;
  std::vector<Ports> hosts_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

void check(Schedule schedule, const Network& network, const ScheduleOptions& options) {
  if (network.ranks < 1 || network.ranks_per_host < 1 || options.segments < 1 ||
      options.servers < 1) {
    throw UsageError(
        fmt::format("a simulated network needs at least one rank, rank a host, segment "
                    "and server, not {}, {}, {} and {}",
                    network.ranks, network.ranks_per_host, options.segments, options.servers));
  }
  const bool leaves_host = network.hosts() > 1 || schedule == Schedule::parameter_server;
  const bool stays_inside = network.ranks_per_host > 1 && network.ranks > 1;
  if ((leaves_host && !(network.between.bandwidth > 0)) ||
      (stays_inside && !(network.inside.bandwidth > 0))) {
    throw UsageError("a simulated network needs a bandwidth above 0 inside and between its hosts");
  }
  if (schedule == Schedule::hierarchical && network.ranks % network.ranks_per_host != 0) {
    throw UsageError(fmt::format("hierarchical all-reduce needs as many ranks on every host: {} "
                                 "ranks are not a multiple of {}",
                                 network.ranks, network.ranks_per_host));
  }
}

} // namespace

std::string_view schedule_name(Schedule schedule) {
  switch (schedule) {
  case Schedule::ring:
    return "ring";
  case Schedule::direct:
    return "direct";
  case Schedule::tree:
    return "tree";
  case Schedule::hierarchical:
    return "hierarchical";
  case Schedule::parameter_server:
    break;
  }
  return "parameter-server";
}

std::vector<Transfer> make_schedule(Schedule schedule, const Network& network, double bytes,
                                    const ScheduleOptions& options) {
  check(schedule, network, options);
  Draft draft;
  switch (schedule) {
  case Schedule::ring:
    draft_ring(draft, network, bytes, options.segments);
    break;
  case Schedule::direct:
    draft_direct(draft, network, bytes);
    break;
  case Schedule::tree:
    draft_tree(draft, network, bytes);
    break;
  case Schedule::hierarchical:
    draft_hierarchical(draft, network, bytes, options.segments);
    break;
  case Schedule::parameter_server:
    draft_parameter_server(draft, network, bytes, options.segments, options.servers);
    break;
  }
  return draft.take();
}

double simulate(const Network& network, const std::vector<Transfer>& transfers) {
  return Simulation(network, transfers).run();
}

double simulate(Schedule schedule, const Network& network, double bytes,
                const ScheduleOptions& options) {
  return simulate(network, make_schedule(schedule, network, bytes, options));
}

} // namespace trainer
