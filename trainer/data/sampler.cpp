#include "trainer/data/sampler.h"

#include <algorithm>
#include <numeric>

namespace trainer {

Sampler::Sampler(std::uint64_t count, const SamplerOptions& options, bool in_order)
    : count_(count), rank_(static_cast<std::size_t>(options.rank)),
      ranks_(static_cast<std::size_t>(options.world_size)),
      streams_(static_cast<std::size_t>(options.streams)), seed_(options.seed), end_(options.end),
      samples_(options.samples > 0 ? options.samples : count),
      global_batch_(
          (options.global_batch > 0 ? options.global_batch : options.batch_size * ranks_) *
          streams_),
      in_order_(in_order), steps_left_(options.steps), position_(options.start),
      epoch_(options.start / streams_ / count), order_(count, options.seed, epoch_),
      part_(equal_part(stream_batch())) {}

Sampler::Part Sampler::equal_part(std::size_t rows) const {
  const std::size_t first = rows * rank_ / ranks_;
  return {first, rows * (rank_ + 1) / ranks_ - first};
}

void Sampler::set_share(std::size_t first, std::size_t rows) { part_ = {first, rows}; }

std::optional<Sampler::Share> Sampler::next() {
  if (steps_left_-- <= 0 || (end_ > 0 && position_ >= end_)) {
    return std::nullopt;
  }
  const bool is_shorter = end_ > 0 && end_ - position_ < global_batch_;
  const std::size_t global_rows = is_shorter ? end_ - position_ : global_batch_;
  const Part part = is_shorter ? equal_part(global_rows / streams_) : part_;
  const Share share{.position = position_ / streams_ + part.first,
                    .rows = std::max<std::size_t>(part.rows, 1),
                    .weight = part.rows > 0 ? 1U : 0U,
                    .global_rows = global_rows};
  position_ += global_rows;
  return share;
}

Sampler::Run Sampler::run(std::uint64_t position, std::size_t rows) {
  if (const std::uint64_t epoch = position / count_; epoch != epoch_) {
    epoch_ = epoch;
    order_ = Permutation(count_, seed_, epoch);
  }
  const std::uint64_t first = position % count_;
  return {order_, first, std::min<std::size_t>(rows, count_ - first)};
}

void Sampler::number(std::uint64_t position, std::span<std::uint64_t> samples) {
  if (in_order_) {
    std::iota(samples.begin(), samples.end(), position);
    return;
  }
  while (!samples.empty()) {
    const Run some = run(position, samples.size());
    for (std::size_t i = 0; i < some.count; ++i) {
      samples[i] = some.order(some.first + i);
    }
    position += some.count;
    samples = samples.subspan(some.count);
  }
}

} // namespace trainer
