// Gradients summed among the ranks, bucket by bucket: an all-reduce each, and every rank updates
// all parameters; or, where ranks share the replica (strategy/shards.h), a reduce-scatter, each
// updates its own chunks, and gathers what the others have updated.
//
// Where neither a norm nor a whole tensor is needed, each bucket is updated as it comes. Elastic
// ranks wait for all buckets before they update any: whatever fails, each of them holds the whole
// of one step or of the next. With one rank there is one bucket and no traffic.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/monitor/timeline.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/exchange.h"
#include "trainer/strategy/gathered.h"

namespace trainer {

/// Buckets whose sums are under way at a time while backward goes on, from stage 2 on; of those
/// before, what is the others' has gone.
inline constexpr std::size_t k_sums_under_way = 2;

class Reduced final : public Exchange {
 public:
  /// Collective. `needs_norm`: sum_squares() is called in each step. What the replica has
  /// registered besides is summed with its gradients. `timeline`, where given, learns what the rank
  /// does; all that it is given outlives it.
  Reduced(Communicator& communicator, Replica& replica, const Buckets& buckets, bool needs_norm,
          Timeline* timeline = nullptr);

  Updates updates() const override { return updates_; }
  const std::vector<ArenaRange>& buckets() const override { return shards_.buckets(); }
  ParameterOwner& owner() override { return *owner_; }

  void begin(const Batch& batch) override;
  void start(std::size_t bucket) override;
  void synchronise() override;
  const double* sum_squares() override;
  void update(const Score& score) override;
  std::int64_t receive() override;

 private:
  void give_back(std::size_t buckets);
  void update_bucket(std::size_t bucket);
  bool is_own_chunks_only() const { return replica_.sharding.stage > 0; }

  /// A bucket's gradients, or what is summed with them.
  struct UnderWay {
    Communicator::Ticket ticket;
    std::size_t bucket; ///< k_no_bucket: what is registered besides, alone.
    double started;
  };
  static constexpr std::size_t k_no_bucket = SIZE_MAX;

  Communicator& communicator_;
  Replica& replica_;
  std::span<float> gradients_;
  WireType wire_;
  Shards shards_;
  std::unique_ptr<Replicated> owner_; ///< The replica's.
  Gathered* gathered_;                ///< The same, at stage 3; else null.
  Updates updates_;
  Timeline* timeline_;
  std::vector<UnderWay> under_way_;           ///< In this step.
  std::size_t given_back_ = 0;                ///< Buckets of which the others' part is gone.
  std::vector<Communicator::Ticket> gathers_; ///< Of what has been updated.
  Buffer squares_memory_;                     ///< Of the device,
  double* squares_ = nullptr;                 ///< or of the communicator there: see sum_squares().
};

} // namespace trainer
