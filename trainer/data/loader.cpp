#include "trainer/data/loader.h"

#include <algorithm>
#include <utility>

#include "trainer/clock.h"
#include "trainer/collectives/records.h"

namespace trainer {
namespace {

constexpr int k_stream_shift = 32; ///< Distance in bits between the seeds of a job's streams.

} // namespace

SamplerOptions sampler_options(const Dataset& data, std::size_t batch_size, int rank,
                               int world_size, std::uint64_t seed, std::uint64_t samples) {
  SamplerOptions options;
  options.batch_size = batch_size;
  options.streams = data.streams;
  options.world_size = world_size / data.streams;
  options.rank = rank % options.world_size;
  options.samples = samples;
  // Workers that read the same files each shuffle them in a different order.
  options.seed = seed + (data.shard == AutoShard::off
                             ? static_cast<std::uint64_t>(data.stream) << k_stream_shift
                             : 0);
  return options;
}

AllSamples all_samples(const Dataset& data, Communicator& communicator) {
  if (data.streams == 1) {
    return {data.train.count, data.train.source->is_stream()};
  }
  struct Samples {
    std::uint64_t count;
    std::uint64_t one_pass;
  };
  AllSamples all;
  std::uint64_t fewest = UINT64_MAX;
  const Samples own = {data.train.count, data.train.source->is_stream() ? 1U : 0U};
  for (const Samples& samples : all_gather(communicator, own, "samples")) {
    all.count += samples.count;
    all.one_pass = all.one_pass || samples.one_pass != 0;
    fewest = std::min(fewest, samples.count);
  }
  const auto ranks = static_cast<std::uint64_t>(communicator.world_size());
  const auto streams = static_cast<std::uint64_t>(data.streams);
  all.count = all.one_pass ? fewest * streams : all.count * streams / ranks;
  return all;
}

Loader::Loader(const Split& split, Device& device, const SamplerOptions& sampling,
               LoaderOptions options)
    : options_(std::move(options)), reader_(static_cast<std::size_t>(sampling.rank)),
      seed_(sampling.seed), sampler_(split.count, sampling, split.source->is_stream()),
      feed_(device, *split.source) {
  split.source->begin(static_cast<std::size_t>(sampling.world_size), sampler_.stream_batch());
  if (is_kept(*split.source, device)) {
    feed_.keep();
  }
}

Loader::Iterator Loader::begin() {
  next();
  return Iterator(this);
}

const Batch& Loader::batch_at(std::uint64_t position) {
  sampler_.seek(position);
  next();
  return batch_;
}

void Loader::next() {
  const std::optional<Sampler::Share> share = sampler_.next();
  if (!share) {
    done_ = true;
    return;
  }
  const double started = now();
  batch_ = gather(*share);
  batch_.position = share->position;
  batch_.global_rows = share->global_rows;
  batch_.weight = share->weight;
  batch_.seconds = now() - started - feed_.seconds_waited();
  seconds_ += batch_.seconds;
}

Batch Loader::gather(const Sampler::Share& share) {
  if (!feed_.keeps()) {
    samples_.resize(share.rows);
    sampler_.number(share.position, samples_);
    return feed_.read({samples_, share.position, seed_, reader_, options_.while_waiting});
  }
  Batch batch = feed_.gather(share.rows);
  for (std::size_t row = 0, count = 0; row < share.rows; row += count) {
    const Sampler::Run run = sampler_.run(share.position + row, share.rows - row);
    count = run.count;
    const Gathering some = feed_.gathering(row, count, run.order, run.first);
    if (options_.leaves_gathering && count == share.rows) {
      batch.gathering = some;
    } else {
      feed_.take(some);
    }
  }
  return batch;
}

} // namespace trainer
