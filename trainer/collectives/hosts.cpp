#include "trainer/collectives/hosts.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/collectives/shared_memory/shared_memory.h"

namespace trainer {
namespace {

class Hosts final : public Carrier {
 public:
  Hosts(HostGroup group, std::vector<RingLinks> links, int rank, Health& health)
      : rank_(rank), members_(group.members), leaders_(group.leaders), host_of_(group.leader_of) {
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
      between_->carry_out(
          {Collective::Kind::allocate, std::as_writable_bytes(floats), 0, {}, WireType::fp32});
    }
    return floats;
  }

  void carry_out(Collective collective) override {
    if (collective.kind == Collective::Kind::broadcast) {
      broadcast(collective);
      return;
    }
    if (collective.kind == Collective::Kind::all_gather) {
      for (const Collective& part :
           gather_by_broadcasts(collective, rank_, static_cast<int>(host_of_.size()))) {
        broadcast(part);
      }
      return;
    }
    if (collective.kind == Collective::Kind::reduce_scatter) {
      collective.kind = Collective::Kind::all_reduce; // The leader has every chunk of it anyway.
    }
    const Collective result{collective.kind == Collective::Kind::all_reduce
                                ? Collective::Kind::broadcast
                                : Collective::Kind::barrier,
                            collective.bytes, 0, collective.name, WireType::fp32};
    if (within_) {
      within_->carry_out(collective);
    }
    if (between_) {
      between_->carry_out(std::move(collective));
    }
    if (within_) {
      within_->carry_out(result);
    }
  }

 private:
  static int position(const std::vector<int>& ranks, int rank) {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }

  /// On the root's host first from the root, on the others last from their leader.
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

  int rank_;
  std::vector<int> members_;
  std::vector<int> leaders_;
  std::vector<int> host_of_;          ///< The leader of every rank.
  std::unique_ptr<Transport> within_; ///< None where this rank is alone on its host.
  std::unique_ptr<Carrier> between_;  ///< Only the leader's.
};

} // namespace

std::unique_ptr<Carrier> make_hosts(HostGroup group, std::vector<RingLinks> links, int rank,
                                    Health& health) {
  return std::make_unique<Hosts>(std::move(group), std::move(links), rank, health);
}

} // namespace trainer
