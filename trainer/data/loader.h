// Batches of one rank, shuffled and sharded by arithmetic alone.
//
// The training data is one endless stream: sample p of the stream is number p mod N of epoch p / N,
// in that epoch's random order. A step of n ranks with batch B takes the next n·B samples, rank r
// those from r·B on. So no two ranks see the same sample, every epoch holds every sample once at
// any world size, all ranks take the same number of steps, and where a run stands is one number,
// the position in the stream, which a checkpoint keeps.
//
// With an end to the stream the last global batch is as long as what is left, in shares that differ
// by one row at most.
//
// Where each worker has a stream of its own (files of its own, or all of them to itself), its ranks
// share that in the same way, and the position is the sum of all.
//
// Shares of a global batch are equal, one after the other in rank order, unless set_share() says
// otherwise.
//
// Samples that come through a FIFO are taken in the order they come, once (data/stream.h).
//
// Samples stay bytes; a batch is gathered, and converted to floats in [0, 1] (data/feed.h), when it
// is asked for, while the next samples' cache lines are already on their way. A thread of its own
// would only take the core from the rank's arithmetic. A device that is not the host and has the
// room for them all gathers them in the same order by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/data/dataset.h"
#include "trainer/data/feed.h"
#include "trainer/data/permutation.h"
#include "trainer/device/device.h"
#include "trainer/nn/batch.h"

namespace trainer {

struct LoaderOptions {
  std::size_t batch_size = 64; ///< Per rank.
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;
  std::uint64_t start = 0; ///< Position in the stream, of all ranks together.
  std::int64_t steps = 0;  ///< Batches to give.
  std::uint64_t end = 0;   ///< Position to stop at, with a shorter last batch; 0: none.
  /// Workers that each have a stream of their own, of which `rank` and `world_size` then are.
  int streams = 1;
  std::uint64_t samples = 0; ///< Of an epoch of all streams; 0: as many as the split has.
  /// Called now and then while samples of a stream are waited for; may throw.
  std::function<void()> while_waiting = [] {};
  /// Of a stream's ranks, in shares that differ by a row; 0: batch_size each.
  std::size_t global_batch = 0;
  bool leaves_gathering = false; ///< To whoever takes a batch: Batch::gathering.
};

/// Of rank `rank` of `world_size`, whose worker reads `data`; `samples` as all_samples() says.
LoaderOptions loader_options(const Dataset& data, std::size_t batch_size, int rank, int world_size,
                             std::uint64_t seed, std::uint64_t samples);

/// An epoch of all workers together.
struct AllSamples {
  std::uint64_t count = 0;
  bool one_pass = false; ///< Some worker's are a stream.
};

/// All workers' samples; with a stream among them, so many of each as the one that has the fewest,
/// for it cannot go through them again. Collective.
AllSamples all_samples(const Dataset& data, Communicator& communicator);

/// Whether the device keeps all samples in its memory: images, as many as it has room for.
inline bool is_kept(const Split& split, const Device& device) {
  return !split.stream && !split.text &&
         split.count * (split.features + 1) <= device.room_for_data();
}

class Loader {
 public:
  Loader(const Split& split, Device& device, const LoaderOptions& options);

  /// `for (const Batch& batch : loader)`; one pass.
  class Iterator {
   public:
    explicit Iterator(Loader* loader) : loader_(loader) {}
    const Batch& operator*() const { return loader_->batch_; }
    Iterator& operator++() {
      loader_->next();
      return *this;
    }
    bool operator!=(std::nullptr_t) const { return !loader_->done_; }

   private:
    Loader* loader_;
  };
  Iterator begin();
  static std::nullptr_t end() { return nullptr; }

  /// The batch from `position` in the stream on, out of turn.
  const Batch& batch_at(std::uint64_t position);

  /// From the next batch on this rank takes `rows` samples of each global batch, from number
  /// `first` of it on. The global batch stays as long as it is.
  void set_share(std::size_t first, std::size_t rows);

  /// Samples that all ranks have taken, the current batch's included.
  std::uint64_t position() const { return position_; }

  /// The same in epochs.
  double epochs() const {
    return static_cast<double>(position_) / static_cast<double>(options_.samples);
  }

  /// Spent gathering batches, since the start.
  double seconds() const { return seconds_; }

 private:
  friend class Iterator;
  void next();
  Batch gather(std::uint64_t first, std::size_t rows);
  void take_from_stream(std::uint64_t first, std::size_t rows);
  const Permutation& order_of(std::uint64_t epoch);
  std::uint64_t sample_at(std::uint64_t position);

  const Split& split_;
  LoaderOptions options_;
  std::size_t global_batch_;
  std::size_t share_first_ = 0;
  std::size_t share_rows_ = 0;
  std::uint64_t position_;
  bool done_ = false;
  std::uint64_t epoch_ = 0;
  Permutation order_;
  Feed feed_;
  std::vector<std::uint64_t> samples_;
  std::vector<std::uint8_t> streamed_; ///< (rows, features), and their labels
  Batch batch_;
  double seconds_ = 0;
};

} // namespace trainer
