// Gradients summed among the ranks, bucket by bucket. Without ZeRO each bucket takes an all-reduce,
// and every rank updates all parameters. With it (strategy/shards.h) each bucket takes a
// reduce-scatter, each rank updates its own chunks, and an all-gather distributes them.
//
// If a step needs neither the norm nor whole tensors, each bucket is updated as it arrives. Elastic
// ranks without ZeRO wait for all buckets before they update any, so that after a failure each rank
// has the parameters of exactly one step. With one rank there is no traffic, and one bucket, unless
// what it updates is offloaded.
//
// Where a GPU's updates wait for what is offloaded, they run beside the device's stream: each
// bucket that is updated as it arrives, beside backward; buckets that are updated together, from
// the last one on, which forward needs first, beside the next step's forward.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/exchange.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/updated_buckets.h"

namespace trainer {

/// From stage 2 on: how many buckets are summed at a time while backward goes on. Of the buckets
/// before them, the other ranks' chunks are freed.
inline constexpr std::size_t k_sums_under_way = 2;

class Reduced final : public Exchange {
 public:
  /// Collective. `needs_norm`: sum_squares() is called in each step. The replica's extra registered
  /// floats are summed with its gradients. `timeline`, if given, records what the rank does. All
  /// arguments outlive the Reduced.
  Reduced(Communicator& communicator, Replica& replica, const Buckets& buckets, bool needs_norm,
          Timeline* timeline = nullptr);
  ~Reduced() override;

  Updates updates() const override { return updates_; }
  const std::vector<ArenaRange>& buckets() const override { return shards_.buckets(); }
  ParameterOwner& owner() override { return *owner_; }

  void begin(const Batch& batch) override;
  void start(std::size_t bucket) override;
  void release(std::size_t count) override;
  void synchronise() override;
  const SquareSum* sum_squares() override;
  void update(const Score& score) override;
  std::int64_t receive() override;
  void join() override { replica_.optimizer.join(); }

 private:
  void give_back(std::size_t buckets);
  void update_bucket(std::size_t bucket);
  void update_whole_tensors();
  void gather_updated(std::size_t bucket, const Event* after);
  bool is_own_chunks_only() const { return replica_.sharding.stage > 0; }
  /// Whether updates run beside the device's stream.
  bool is_beside() const {
    return !replica_.device.is_host() && replica_.optimizer.is_elsewhere() &&
           !replica_.optimizer.needs_whole_tensors();
  }
  /// One rank that takes all gradients at once.
  bool is_alone() const {
    return communicator_.world_size() == 1 && !is_own_chunks_only() && !is_beside();
  }

  /// The sum of a bucket's gradients, or of the replica's extra floats.
  struct UnderWay {
    Communicator::Ticket ticket;
    std::size_t bucket; ///< k_no_bucket: the extra floats.
  };
  static constexpr std::size_t k_no_bucket = SIZE_MAX;

  Communicator& communicator_;
  Replica& replica_;
  std::span<float> gradients_;
  WireType wire_;
  Shards shards_;
  UpdatedBuckets updated_;            ///< Beside the device's stream.
  std::unique_ptr<Replicated> owner_; ///< Of the replica's parameters.
  Updates updates_;
  std::vector<UnderWay> under_way_; ///< In this step.
  std::size_t given_back_ = 0;      ///< Buckets whose chunks of other ranks are freed.
  /// Per bucket, where it is updated at once and beside: it may be, after this event.
  std::vector<std::shared_ptr<const Event>> may_update_;
  std::size_t released_ = 0;                  ///< Buckets that the model reads no more.
  std::vector<Communicator::Ticket> gathers_; ///< All-gathers of updated chunks.
  Buffer squares_memory_;                     ///< On the device.
  SquareSum* squares_ = nullptr; ///< There, or in the communicator's memory: see sum_squares().
};

} // namespace trainer
