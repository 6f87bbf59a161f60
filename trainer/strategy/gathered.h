// The owner (nn/parameter_owner.h) of parameters at ZeRO's stage 3 (strategy/shards.h), of which a
// rank holds its own chunks: they are gathered unit by unit before the model uses them, and what is
// the others' is given back after.
//
// The first pass notes in which order the model needs its units; from then on the next one's gather
// is started before this one is waited for, and runs while this one is computed with. So two units
// are there at a time, and the buckets that they share with others.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/device/device.h"
#include "trainer/strategy/replicated.h"
#include "trainer/strategy/shards.h"

namespace trainer {

class Gathered final : public Replicated {
 public:
  /// `arenas` are the device's paged memory, the parameters' own chunks perhaps `is_in_file`. All
  /// that it is given outlives it, but `shards`.
  Gathered(Communicator& communicator, Device& device, const std::vector<ArenaRange>& units,
           const Shards& shards, const Arenas& arenas, bool is_in_file = false);

  /// Units are needed in the same order in each.
  void begin_pass() override { at_ = 0; }
  UnitMemory need(std::size_t unit) override;
  void done(std::size_t unit) override;
  bool is_shared() const override { return true; }

  /// Its own chunk of a bucket has been used.
  void put_away(std::size_t bucket);

  /// Only its own chunks are here: what the others hold has changed, or is not needed.
  void change() override;

 private:
  struct Bucket {
    int users = 0;
    bool is_here = false; ///< Or on its way:
    Communicator::Ticket ticket = 0;
    bool is_coming = false;
  };
  void fetch(std::size_t unit);
  void wait(Bucket& bucket);
  void start(std::size_t bucket);
  void give_back(std::size_t bucket);
  ArenaRange buckets_of(std::size_t unit) const;

  Communicator& communicator_;
  Device& device_;
  Shards shards_;
  bool is_in_file_;
  std::vector<Bucket> buckets_;
  std::vector<bool> fetched_; ///< Units.
  struct Use {
    std::size_t unit;
    bool needs; ///< Else it is done.
  };
  std::vector<Use> order_; ///< Of a pass.
  std::size_t at_ = 0;     ///< In it.
};

/// Collective. The whole of a device's arena of which each rank has its own chunks there.
void gather_arena(Communicator& communicator, Device& device, const Shards& shards,
                  std::span<float> arena);
/// What of a bucket of it is not this rank's own goes back to the machine.
void discard_others(Device& device, const Shards& shards, std::size_t bucket,
                    std::span<float> arena);

/// Where a rank's own chunks lie in its device's memory.
struct OwnChunks {
  std::span<float> memory;
  bool is_arena; ///< At their places in one; else one behind the other.
};

/// Collective. Gives each bucket in turn to `take`, whole and on the host.
void gather_buckets(Communicator& communicator, Device& device, const Shards& shards,
                    const OwnChunks& own,
                    const std::function<void(const ArenaRange&, std::span<const float>)>& take);
/// Asks `fill` for this rank's own chunks, one a bucket.
void fill_chunks(Device& device, const Shards& shards,
                 const std::function<void(const ArenaRange&, std::span<float> to)>& fill,
                 const OwnChunks& own);
/// Collective, the other way: each rank's own chunks of what rank `source` is asked for by `fill`,
/// a bucket at a time.
void scatter_buckets(Communicator& communicator, Device& device, const Shards& shards, int source,
                     const std::function<void(const ArenaRange&, std::span<float> to)>& fill,
                     const OwnChunks& own);

} // namespace trainer
