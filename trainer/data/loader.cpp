#include "trainer/data/loader.h"

#include <algorithm>
#include <utility>

#include "trainer/clock.h"
#include "trainer/collectives/records.h"

namespace trainer {
namespace {

constexpr std::size_t k_cache_line = 64;
constexpr int k_stream_shift = 32; ///< Seeds of a job's streams lie that far apart.

void prefetch(const std::uint8_t* from, std::size_t size) {
  for (std::size_t i = 0; i < size; i += k_cache_line) {
    __builtin_prefetch(from + i);
  }
}

} // namespace

SamplerOptions sampler_options(const Dataset& data, std::size_t batch_size, int rank,
                               int world_size, std::uint64_t seed, std::uint64_t samples) {
  SamplerOptions options;
  options.batch_size = batch_size;
  options.streams = data.streams;
  options.world_size = world_size / data.streams;
  options.rank = rank % options.world_size;
  options.samples = samples;
  // Workers that read the same files shuffle them each in an order of its own.
  options.seed = seed + (data.shard == AutoShard::off
                             ? static_cast<std::uint64_t>(data.stream) << k_stream_shift
                             : 0);
  return options;
}

AllSamples all_samples(const Dataset& data, Communicator& communicator) {
  if (data.streams == 1) {
    return {data.train.count, data.train.stream != nullptr};
  }
  struct Samples {
    std::uint64_t count;
    std::uint64_t one_pass;
  };
  AllSamples all;
  std::uint64_t fewest = UINT64_MAX;
  const Samples own = {data.train.count, data.train.stream ? 1U : 0U};
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
    : split_(split), options_(std::move(options)), reader_(static_cast<std::size_t>(sampling.rank)),
      seed_(sampling.seed), sampler_(split.count, sampling, split.stream != nullptr),
      feed_(device, split.features, split.text.get()) {
  if (split.stream) {
    split.stream->begin(static_cast<std::size_t>(sampling.world_size), sampler_.stream_batch());
  }
  if (is_kept(split, device)) {
    feed_.keep(split.images.data(), split.labels.data(), split.count);
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
  batch_ = gather(share->position, share->rows);
  batch_.position = share->position;
  batch_.global_rows = share->global_rows;
  batch_.weight = share->weight;
  batch_.seconds = now() - started;
  seconds_ += batch_.seconds;
}

Batch Loader::gather(std::uint64_t first, std::size_t rows) {
  feed_.begin(rows);
  if (split_.stream) {
    take_from_stream(first, rows);
    return feed_.finish();
  }
  if (feed_.keeps()) {
    Batch batch = feed_.finish();
    for (std::size_t row = 0, count = 0; row < rows; row += count) {
      const Sampler::Run run = sampler_.run(first + row, rows - row);
      count = run.count;
      const Gathering some = feed_.gathering(row, count, run.order, run.first);
      if (options_.leaves_gathering && count == rows) {
        batch.gathering = some;
      } else {
        feed_.take(some);
      }
    }
    return batch;
  }
  samples_.resize(rows);
  sampler_.number(first, samples_);
  if (split_.text) {
    for (std::size_t row = 0; row < rows; ++row) {
      feed_.put_text(row, samples_[row], seed_, first + row);
    }
    return feed_.finish();
  }
  const std::size_t features = split_.features;
  // The last rows' lines are asked for before the first are converted: rows lie anywhere in memory.
  constexpr std::size_t k_ahead = 8;
  for (std::size_t row = 0; row < rows + k_ahead; ++row) {
    if (row < rows) {
      prefetch(split_.images.data() + samples_[row] * features, features);
    }
    if (row >= k_ahead) {
      const std::uint64_t sample = samples_[row - k_ahead];
      feed_.put(row - k_ahead, 1, split_.images.data() + sample * features, &split_.labels[sample]);
    }
  }
  return feed_.finish();
}

void Loader::take_from_stream(std::uint64_t first, std::size_t rows) {
  const std::size_t pixels = rows * split_.features;
  streamed_.resize(pixels + rows);
  const std::span<std::uint8_t> images = std::span(streamed_).first(pixels);
  const std::span<std::uint8_t> labels = std::span(streamed_).last(rows);
  split_.stream->read(reader_, first, images, labels, options_.while_waiting);
  feed_.put(0, rows, images.data(), labels.data());
}

} // namespace trainer
