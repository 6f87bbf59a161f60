// Batches of one rank: of the samples that its sampler names (data/sampler.h), rows that the source
// reads (data/source.h) and the feed brings to the device (data/feed.h), when they are asked for. A
// thread of its own would only take the core from the rank's arithmetic. A device that keeps all
// samples gathers them in the same order by itself.
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
  /// Called now and then while samples of a stream are waited for; may throw.
  std::function<void()> while_waiting = [] {};
  bool leaves_gathering = false; ///< To whoever takes a batch: Batch::gathering.
};

/// Of rank `rank` of `world_size`, whose worker reads `data`; `samples` as all_samples() says.
SamplerOptions sampler_options(const Dataset& data, std::size_t batch_size, int rank,
                               int world_size, std::uint64_t seed, std::uint64_t samples);

/// An epoch of all workers together.
struct AllSamples {
  std::uint64_t count = 0;
  bool one_pass = false; ///< Some worker's are a stream.
};

/// All workers' samples; with a stream among them, so many of each as the one that has the fewest,
/// for it cannot go through them again. Collective.
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

  /// The batch from `position` in the stream on, out of turn.
  const Batch& batch_at(std::uint64_t position);

  /// As Sampler has them.
  void set_share(std::size_t first, std::size_t rows) { sampler_.set_share(first, rows); }
  std::uint64_t position() const { return sampler_.position(); }
  double epochs() const { return sampler_.epochs(); }

  /// Spent gathering batches, since the start.
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
  std::vector<std::uint64_t> samples_; ///< Of the batch, their numbers.
  bool done_ = false;
  Batch batch_;
  double seconds_ = 0;
};

} // namespace trainer
