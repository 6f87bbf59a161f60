#include "trainer/data/loader.h"

#include <algorithm>

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

LoaderOptions loader_options(const Dataset& data, std::size_t batch_size, int rank, int world_size,
                             std::uint64_t seed, std::uint64_t samples) {
  LoaderOptions options;
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

Loader::Loader(const Split& split, Device& device, const LoaderOptions& options)
    : split_(split), options_(options),
      global_batch_((options.global_batch > 0
                         ? options.global_batch
                         : options.batch_size * static_cast<std::size_t>(options.world_size)) *
                    static_cast<std::size_t>(options.streams)),
      position_(options.start),
      epoch_(options.start / static_cast<std::uint64_t>(options.streams) / split.count),
      order_(split.count, options.seed, epoch_), feed_(device, split.features, split.text.get()) {
  const auto rank = static_cast<std::size_t>(options.rank);
  const auto ranks = static_cast<std::size_t>(options.world_size);
  const std::size_t of_stream = global_batch_ / static_cast<std::size_t>(options.streams);
  share_first_ = of_stream * rank / ranks;
  share_rows_ = of_stream * (rank + 1) / ranks - share_first_;
  if (options_.samples == 0) {
    options_.samples = split.count;
  }
  if (split.stream) {
    split.stream->begin(ranks, of_stream);
  }
  if (is_kept(split, device)) {
    feed_.keep(split.images.data(), split.labels.data(), split.count);
  }
}

void Loader::set_share(std::size_t first, std::size_t rows) {
  share_first_ = first;
  share_rows_ = rows;
}

Loader::Iterator Loader::begin() {
  next();
  return Iterator(this);
}

const Batch& Loader::batch_at(std::uint64_t position) {
  position_ = position;
  next();
  return batch_;
}

const Permutation& Loader::order_of(std::uint64_t epoch) {
  if (epoch != epoch_) {
    epoch_ = epoch;
    order_ = Permutation(split_.count, options_.seed, epoch);
  }
  return order_;
}

std::uint64_t Loader::sample_at(std::uint64_t position) {
  return order_of(position / split_.count)(position % split_.count);
}

void Loader::next() {
  if (options_.steps-- <= 0 || (options_.end > 0 && position_ >= options_.end)) {
    done_ = true;
    return;
  }
  const double started = now();
  std::size_t first = share_first_;
  std::size_t rows = share_rows_;
  std::size_t global_rows = global_batch_;
  if (options_.end > 0 && options_.end - position_ < global_batch_) {
    const auto rank = static_cast<std::size_t>(options_.rank);
    const auto ranks = static_cast<std::size_t>(options_.world_size);
    global_rows = options_.end - position_;
    const std::size_t own = global_rows / static_cast<std::size_t>(options_.streams);
    first = own * rank / ranks;
    rows = own * (rank + 1) / ranks - first;
  }
  const bool is_padding = rows == 0;
  rows = is_padding ? 1 : rows;
  batch_ = gather(position_ / static_cast<std::uint64_t>(options_.streams) + first, rows);
  batch_.position = position_ / static_cast<std::uint64_t>(options_.streams) + first;
  batch_.global_rows = global_rows;
  batch_.seconds = now() - started;
  batch_.is_padding = is_padding;
  position_ += global_rows;
  seconds_ += batch_.seconds;
}

Batch Loader::gather(std::uint64_t first, std::size_t rows) {
  feed_.begin(rows);
  if (split_.stream) {
    take_from_stream(first, rows);
    return feed_.finish();
  }
  if (split_.text) {
    for (std::size_t row = 0; row < rows; ++row) {
      feed_.put_text(row, sample_at(first + row), options_.seed, first + row);
    }
    return feed_.finish();
  }
  if (feed_.keeps()) {
    Batch batch = feed_.finish();
    for (std::size_t row = 0, count = 0; row < rows; row += count) { // Of one epoch at a time.
      const std::uint64_t at = (first + row) % split_.count;
      count = std::min<std::size_t>(rows - row, split_.count - at);
      const Gathering some =
          feed_.gathering(row, count, order_of((first + row) / split_.count), at);
      if (options_.leaves_gathering && count == rows) {
        batch.gathering = some;
      } else {
        feed_.take(some);
      }
    }
    return batch;
  }
  samples_.resize(rows);
  const std::size_t features = split_.features;
  // The last rows' lines are asked for before the first are converted: rows lie anywhere in memory.
  constexpr std::size_t k_ahead = 8;
  for (std::size_t row = 0; row < rows + k_ahead; ++row) {
    if (row < rows) {
      samples_[row] = sample_at(first + row);
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
  split_.stream->read(static_cast<std::size_t>(options_.rank), first, images, labels,
                      options_.while_waiting);
  feed_.put(0, rows, images.data(), labels.data());
}

} // namespace trainer
