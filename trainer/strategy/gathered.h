// The owner (nn/parameter_owner.h) of parameters at ZeRO's stage 3 (strategy/shards.h): a rank
// holds its own chunks, gathers each unit before the model uses it, and frees the other ranks'
// chunks after. Own chunks that are elsewhere, in the host's memory or in a file, come to the arena
// before each gather, beside what is computed, and are freed there after it, too: a CPU's file is
// mapped to their places and read ahead, a GPU's are copied there on a stream of their own, from
// pinned memory that the file was read into.
//
// Where the model computes in 16 bits, they travel in 16 bits: between ranks, and from a GPU's
// pinned memory. Each rank rounds its own before a gather, or has them rounded since they were
// updated, and so the bits are those of parameters that were gathered and then rounded, but for
// fp16's largest: 65520 and more travel as 65504, and round_to() would make them infinite.
//
// The first pass records the order in which the model needs its units; from then on the gather of
// the next unit starts before the wait for this one, and runs while this one is computed with. So
// two units are in memory at a time, and the buckets that they share with others; but one of a
// single rank on a CPU, which gathers nothing. From a file the unit after the next is being read.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/device/device.h"
#include "trainer/strategy/replicated.h"
#include "trainer/strategy/shards.h"

namespace trainer {

class Gathered final : public Replicated {
 public:
  /// `arenas`: paged memory of the device. `own`: the own chunks, in the arena of parameters, which
  /// a file may be mapped to, or, for a GPU, in pinned memory or in a file. All arguments but
  /// `shards` outlive the owner.
  Gathered(Communicator& communicator, Device& device, const std::vector<ArenaRange>& units,
           const Shards& shards, const Arenas& arenas, const OwnChunks& own);
  ~Gathered() override; ///< Waits for what is being read.

  /// Begins a pass; each pass needs the units in the same order.
  void begin_pass() override { at_ = 0; }
  UnitMemory need(std::size_t unit) override;
  void done(std::size_t unit) override;
  bool is_shared() const override { return true; }

  /// Frees all chunks of other ranks: they have changed, or are not needed.
  void change() override;

 private:
  struct Bucket {
    std::size_t own_at; ///< Where its own chunk begins in own_.
    int users = 0;
    bool is_here = false;   ///< In memory, or being gathered:
    bool is_coming = false; ///< by this ticket.
    Communicator::Ticket ticket = 0;
    std::shared_ptr<Event> copied = nullptr; ///< Its own chunk, to the device.
    /// Its own chunk is being read, or has been, for the next gather: to staging memory, for a GPU.
    std::optional<ValueFile::Ticket> read = std::nullopt;
    std::size_t staging = 0;
  };
  /// Pinned memory for a chunk on its way from a file to a GPU.
  struct Staging {
    Buffer memory;
    bool is_taken = true;
    std::shared_ptr<Event> copied = nullptr; ///< What was in it last has been, after this.
  };
  void fetch(std::size_t unit);
  void read_ahead(std::size_t unit);
  void wait(std::size_t bucket);
  void start(std::size_t bucket);
  void start_read(std::size_t bucket);
  void end_read(Bucket& bucket);
  void bring_own(std::size_t bucket);
  std::shared_ptr<const Event> updated_of(std::size_t bucket);
  void give_back(std::size_t bucket);
  std::size_t find_staging();
  ArenaRange buckets_of(std::size_t unit) const;
  bool is_in_halves() const { return !arenas_.halves.empty(); }
  std::span<float> parameters(const ArenaRange& range) const {
    return arenas_.parameters.subspan(range.first, range.size());
  }
  /// The paged memory in which values are gathered.
  std::span<float> gathered(const ArenaRange& range) const {
    return is_in_halves() ? arenas_.halves.subspan(range.first / 2, range.size() / 2)
                          : parameters(range);
  }
  void round(std::size_t unit) override;

  Communicator& communicator_;
  Device& device_;
  Shards shards_;
  OwnChunks own_;
  DType type_; ///< In which values are gathered.
  /// Of own chunks to where a GPU gathers them; null: they are there.
  std::unique_ptr<Stream> copies_;
  bool gathers_; ///< From other ranks, or to a GPU.
  std::vector<Staging> staging_;
  std::vector<Bucket> buckets_;
  std::vector<bool> fetched_;        ///< Per unit.
  std::vector<bool> has_factors_of_; ///< Per unit: `halves` is what products multiply.
  struct Use {
    std::size_t unit;
    bool needs; ///< need(); else done().
  };
  std::vector<Use> order_; ///< Calls of a pass.
  std::size_t at_ = 0;     ///< The next one in order_.
};

/// Collective. Gathers a whole arena in the device's memory from the ranks' own chunks.
void gather_arena(Communicator& communicator, Device& device, const Shards& shards,
                  std::span<float> arena);
/// Frees the chunks of a bucket that are not this rank's own.
void discard_others(Device& device, const Shards& shards, std::size_t bucket,
                    std::span<float> arena);

/// Collective. Calls `take` with each whole bucket in turn, in the host's memory.
void gather_buckets(Communicator& communicator, Device& device, const Shards& shards,
                    const OwnChunks& own,
                    const std::function<void(const ArenaRange&, std::span<const float>)>& take);
/// Has `fill` write this rank's own chunks, one per bucket.
void fill_chunks(Device& device, const Shards& shards,
                 const std::function<void(const ArenaRange&, std::span<float> to)>& fill,
                 const OwnChunks& own);
/// Collective. `fill` writes one bucket after another on rank `source`, and each rank keeps its own
/// chunks of them.
void scatter_buckets(Communicator& communicator, Device& device, const Shards& shards, int source,
                     const std::function<void(const ArenaRange&, std::span<float> to)>& fill,
                     const OwnChunks& own);

} // namespace trainer
