#include "trainer/data/loader.h"

#include "trainer/clock.h"

namespace trainer {
namespace {

constexpr std::size_t k_cache_line = 64;

void prefetch(const std::uint8_t* from, std::size_t size) {
  for (std::size_t i = 0; i < size; i += k_cache_line) {
    __builtin_prefetch(from + i);
  }
}

} // namespace

Loader::Loader(const Split& split, const CpuKernels& kernels, const LoaderOptions& options)
    : split_(split), kernels_(kernels), options_(options),
      global_batch_(options.batch_size * static_cast<std::size_t>(options.world_size)),
      share_first_(options.batch_size * static_cast<std::size_t>(options.rank)),
      share_rows_(options.batch_size), position_(options.start),
      epoch_(options.start / split.count), order_(split.count, options.seed, epoch_),
      images_(options.batch_size * split.features), labels_(options.batch_size),
      samples_(options.batch_size) {}

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

std::uint64_t Loader::sample_at(std::uint64_t position) {
  const std::uint64_t epoch = position / split_.count;
  if (epoch != epoch_) {
    epoch_ = epoch;
    order_ = Permutation(split_.count, options_.seed, epoch);
  }
  return order_(position % split_.count);
}

void Loader::next() {
  if (options_.steps-- <= 0) {
    done_ = true;
    return;
  }
  const double started = now();
  const std::size_t features = split_.features;
  const std::uint64_t first = position_ + share_first_;
  if (share_rows_ > labels_.size()) {
    images_ = Buffer(share_rows_ * features);
    labels_.resize(share_rows_);
    samples_.resize(share_rows_);
  }
  // The last rows' lines are asked for before the first are converted: rows lie anywhere in memory.
  constexpr std::size_t k_ahead = 8;
  for (std::size_t row = 0; row < share_rows_ + k_ahead; ++row) {
    if (row < share_rows_) {
      samples_[row] = sample_at(first + row);
      prefetch(split_.images.data() + samples_[row] * features, features);
    }
    if (row >= k_ahead) {
      const std::size_t ready = row - k_ahead;
      kernels_.bytes_to_floats(features, split_.images.data() + samples_[ready] * features,
                               images_.data() + ready * features);
      labels_[ready] = split_.labels[samples_[ready]];
    }
  }
  batch_ = {share_rows_, images_.span().first(share_rows_ * features),
            std::span(labels_).first(share_rows_), global_batch_, now() - started};
  position_ += global_batch_;
  seconds_ += batch_.seconds;
}

} // namespace trainer
