#include "trainer/collectives/hosts.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/collectives/shared_memory/shared_memory.h"

namespace trainer {
namespace {

class Hosts final : public Carrier {
 public:
  Hosts(HostGroup group, std::vector<RingLinks> links, int rank, Health& health)
      : members_(group.members), leaders_(group.leaders), host_of_(group.leader_of) {
    for (std::size_t other = 0; other < host_of_.size(); ++other) {
      owners_here_.push_back(host_of_[other] == members_.front()
                                 ? position(members_, static_cast<int>(other))
                                 : k_nobody);
      owners_between_.push_back(position(leaders_, host_of_[other]));
    }
    if (rank == members_.front()) {
      between_ = make_ring(std::move(links), health);
    }
    if (members_.size() > 1) {
      within_ = make_shared_memory(std::move(group), rank, health);
    }
  }

  std::string describe() const override {
    return fmt::format("shared memory within {} hosts, TCP ring between them", leaders_.size());
  }

  Route route(std::size_t bytes, WireType wire) const override {
    Route between = between_ ? between_->route(bytes, wire) : Route{"its leader's", 0};
    return {fmt::format("hierarchical: {}; then between hosts {}",
                        within_ ? within_->route(bytes, wire).how : "one rank", between.how),
            between.sent};
  }

  std::span<float> allocate(std::size_t count) override {
    if (!within_) {
      return between_->allocate(count);
    }
    const std::span<float> floats = within_->allocate(count);
    if (between_) {
      between_->carry_out({Collective::Kind::allocate, floats});
    }
    return floats;
  }

  void carry_out(Collective collective) override {
    switch (collective.kind) {
    case Collective::Kind::all_reduce:
    case Collective::Kind::reduce_scatter:
      reduce(std::move(collective));
      break;
    case Collective::Kind::all_gather:
      all_gather(std::move(collective));
      break;
    case Collective::Kind::broadcast:
      broadcast(collective);
      break;
    default: // Nothing to carry.
      barrier(collective);
      break;
    }
  }

 private:
  static int position(const std::vector<int>& ranks, int rank) {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }

  /// The leader adds up its host's, and the leaders the hosts'. In the first half each leader ends
  /// with what its host's ranks own, and gives each its own.
  void reduce(Collective collective) {
    const bool is_half = collective.kind == Collective::Kind::reduce_scatter;
    Collective part = collective;
    if (within_) {
      part.kind = Collective::Kind::reduce_scatter;
      part.owners = &to_leader_;
      part.pieces = 1;
      within_->carry_out(part);
    }
    if (between_) {
      collective.owners = &owners_between_;
      between_->carry_out(collective);
    }
    if (within_) {
      part = collective;
      part.kind = is_half ? Collective::Kind::scatter : Collective::Kind::broadcast;
      part.owners = &owners_here_;
      part.wire = WireType::fp32;
      within_->carry_out(std::move(part));
    }
  }

  void all_gather(Collective collective) {
    Collective part = collective;
    part.owners = &owners_here_;
    part.wire = WireType::fp32; // The leaders round all.
    if (within_) {
      part.kind = Collective::Kind::gather;
      within_->carry_out(part);
    }
    if (between_) {
      collective.owners = &owners_between_;
      between_->carry_out(std::move(collective));
    }
    if (within_) {
      part.kind = Collective::Kind::broadcast;
      within_->carry_out(std::move(part));
    }
  }

  void barrier(const Collective& collective) {
    if (within_) {
      within_->carry_out(collective);
    }
    if (between_) {
      between_->carry_out(collective);
    }
    if (within_) {
      within_->carry_out(collective);
    }
  }

  /// On the root's host the root broadcasts first; on other hosts their leader does, last.
  void broadcast(const Collective& collective) {
    const int leader = host_of_[static_cast<std::size_t>(collective.root)];
    const bool is_here = leader == members_.front();
    Collective part = collective;
    if (within_ && is_here) {
      part.root = position(members_, collective.root);
      within_->carry_out(part);
    }
    if (between_) {
      part.root = position(leaders_, leader);
      between_->carry_out(part);
    }
    if (within_ && !is_here) {
      part.root = 0;
      within_->carry_out(part);
    }
  }

  static constexpr int k_nobody = -1; ///< On this host.

  std::vector<int> members_;
  std::vector<int> leaders_;
  std::vector<int> host_of_;          ///< The leader of every rank.
  std::vector<int> to_leader_ = {0};  ///< Which position owns which chunk: the leader all,
  std::vector<int> owners_here_;      ///< those of every rank within this host,
  std::vector<int> owners_between_;   ///< and between the leaders.
  std::unique_ptr<Transport> within_; ///< Null if this rank is alone on its host.
  std::unique_ptr<Carrier> between_;  ///< Only the leader's.
};

} // namespace

std::unique_ptr<Carrier> make_hosts(HostGroup group, std::vector<RingLinks> links, int rank,
                                    Health& health) {
  return std::make_unique<Hosts>(std::move(group), std::move(links), rank, health);
}

} // namespace trainer
