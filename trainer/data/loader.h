// Batches of one rank: the sampler chooses samples (data/sampler.h), the source reads their rows
// (data/source.h) and the feed brings them to the device (data/feed.h), when a batch is asked for.
// There is no loader thread: it would take the core from the rank's arithmetic. A device that keeps
// all samples gathers them by itself, in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/data/dataset.h"
#include "trainer/data/feed.h"
#include "trainer/data/sampler.h"
#include "trainer/device/device.h"
#include "trainer/nn/batch.h"

namespace trainer {

struct LoaderOptions {
  /// Called now and then while the loader waits for samples of a stream; may throw.
  std::function<void()> while_waiting = [] {};
  bool leaves_gathering = false; ///< The caller runs the kernel: Batch::gathering.
};

/// For rank `rank` of `world_size`, whose worker reads `data`; `samples`: AllSamples::count.
SamplerOptions sampler_options(const Dataset& data, std::size_t batch_size, int rank,
                               int world_size, std::uint64_t seed, std::uint64_t samples);

/// An epoch of all workers together.
struct AllSamples {
  std::uint64_t count = 0;
  bool one_pass = false; ///< Some worker streams its samples.
};

/// Collective. The samples of all workers. If one of them streams, which allows one pass only, each
/// worker counts as many as the one that has the fewest.
AllSamples all_samples(const Dataset& data, Communicator& communicator);

class Loader {
 public:
  Loader(const Split& split, Device& device, const SamplerOptions& sampling,
         LoaderOptions options = {});

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

  /// The batch from `position` in the stream on; next() is not affected.
  const Batch& batch_at(std::uint64_t position);

  /// See Sampler.
  void set_share(std::size_t first, std::size_t rows) { sampler_.set_share(first, rows); }
  std::uint64_t position() const { return sampler_.position(); }
  double epochs() const { return sampler_.epochs(); }

  /// Total time spent on reading batches.
  double seconds() const { return seconds_; }

 private:
  friend class Iterator;
  void next();
  Batch gather(const Sampler::Share& share);

  LoaderOptions options_;
  std::size_t reader_; ///< Of a stream.
  std::uint64_t seed_;
  Sampler sampler_;
  Feed feed_;
  std::vector<std::uint64_t> samples_; ///< The batch's, by number.
  bool done_ = false;
  Batch batch_;
  double seconds_ = 0;
};

} // namespace trainer
