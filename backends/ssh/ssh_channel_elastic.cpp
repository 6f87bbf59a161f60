// Where the ranks of an elastic job go whose host is lost, or whose GPU is faulty.
#include "backends/ssh/ssh_channel.h"

#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace dtrain::ssh {

/// Those whose slots the user gave: other hosts have as many ranks as were placed there. Connected
/// hosts come first: others may take time.
std::vector<std::string> SshChannel::hosts_with_room(const std::string& but) {
  const auto suspects = connections_.suspects();
  std::vector<std::string> hosts;
  for (const auto& host : plan_.hosts) {
    const auto taken =
        std::count_if(plan_.ranks.begin(), plan_.ranks.end(), [&](const GangRank& each) {
          return takes_slot(each) && each.host == host.name;
        });
    if (host.name != but && host.slots > taken && !suspects.contains(host.name) &&
        connections_.loss(host.name) == nullptr) {
      const bool is_near = connections_.find(host.name) != nullptr;
      hosts.insert(is_near ? hosts.begin() : hosts.end(), host.name);
    }
  }
  return hosts;
}

/// `rank` is one of plan_'s. False where no other host can run it, and it stays.
bool SshChannel::takes_other_host(GangRank& rank, const std::function<bool()>& stops) {
  const auto before = rank.host;
  const auto go_to = [&](const std::string& host) {
    rank.host = host;
    const auto claim = known_.claims.find(rank.instance);
    if (claim != known_.claims.end() && claim->second.host != host) {
      free_claim(rank.instance);
    }
  };
  for (const auto& host : hosts_with_room(before)) {
    go_to(host);
    try {
      ask({&rank}, stops);
      return true;
    } catch (const WaitStopped&) {
      go_to(before);
      throw;
    } catch (const EngineError&) {
      // The next, then.
    }
  }
  go_to(before);
  return false;
}

/// Not for the first rank, whose address all others have.
std::optional<RankPlace> SshChannel::move(GangRank& rank) {
  const auto position = position_of(plan_.ranks, rank.instance);
  if (position == 0 || position == plan_.ranks.size() ||
      !takes_other_host(plan_.ranks[position], stops_or_ended_)) {
    return std::nullopt;
  }
  const auto& own = plan_.ranks[position];
  moved_[rank.instance] = rank.host = own.host;
  return place_of(own);
}

/// Before a start: has instances with faulty GPUs take free slots of other hosts, or does without
/// their places. False where the job needs one of them.
bool SshChannel::leave_out_faulty(const std::map<std::string, FaultyPlace>& faulty) {
  for (auto i = plan_.ranks.size(); i-- > 0;) { // Those behind a place that is left out move up.
    auto& rank = plan_.ranks[i];
    const auto found = faulty.find(rank.instance);
    if (found == faulty.end()) {
      continue;
    }
    const auto fault = fmt::format("{}: {}", found->second.host, found->second.faults);
    if (takes_other_host(rank, stops_)) {
      known_.tell(fmt::format("{}; {} runs on {} instead", fault, rank.instance, rank.host));
      place_beside_first(plan_.ranks);
      continue;
    }
    const auto instance = leave_out_place(plan_, found->first);
    if (instance.empty()) {
      return false;
    }
    known_.tell(fmt::format("{}; no host has a free slot with a good GPU: started without {}",
                            fault, instance));
  }
  hand_over_claims();
  return true;
}

/// From those that have moved up to those that took their places, before any has started.
void SshChannel::hand_over_claims() {
  std::vector<DeviceClaim> left;
  std::erase_if(known_.claims, [&](const auto& claim) {
    const bool stays =
        std::any_of(plan_.ranks.begin(), plan_.ranks.end(), [&](const GangRank& rank) {
          return rank.instance == claim.first && rank.host == claim.second.host;
        });
    if (!stays) {
      left.push_back(claim.second);
    }
    return !stays;
  });
  for (const auto& claim : left) {
    const auto heir =
        std::find_if(plan_.ranks.begin(), plan_.ranks.end(), [&](const GangRank& rank) {
          return rank.host == claim.host && rank.gpus == claim.gpus &&
                 !known_.claims.contains(rank.instance);
        });
    if (heir != plan_.ranks.end()) {
      known_.claims[heir->instance] = claim;
    } else if (auto* connection = connections_.find(claim.host)) {
      connection->free(claim.key);
    }
  }
}

/// Has take() find a plan's ranks where they are now.
void SshChannel::remember_moves(const std::vector<GangRank>& planned) {
  for (const auto& rank : plan_.ranks) {
    const auto position = position_of(planned, rank.instance);
    if (position < planned.size() && planned[position].host != rank.host) {
      moved_[rank.instance] = rank.host;
    }
  }
}

std::string SshChannel::leave_out_lost(GangPlan& plan) {
  if (is_fresh_) { // submit has refused hosts that cannot be used.
    return "";
  }
  const auto planned = plan.ranks;
  std::set<std::string> lost;
  while (true) {
    try {
      claim(plan, planned);
      return lost.empty() ? ""
                          : fmt::format("restarted without {}, which can no longer be used",
                                        fmt::join(lost, ", "));
    } catch (const UnusableHosts& error) {
      if (error.names.empty() || !leave_out_hosts(plan, error.names)) {
        throw;
      }
      lost.insert(error.names.begin(), error.names.end());
    }
  }
}

} // namespace dtrain::ssh
