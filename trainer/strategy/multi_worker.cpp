#include "trainer/strategy/multi_worker.h"

#include <algorithm>

#include "trainer/clock.h"

namespace trainer {

MultiWorker::MultiWorker(Communicator& communicator, AdamOptimizer& optimizer,
                         std::span<float> gradients, Buckets buckets, BatchSplit* split,
                         Timeline* timeline)
    : communicator_(communicator), optimizer_(optimizer), gradients_(gradients),
      wire_(buckets.wire),
      bucket_size_(communicator.world_size() == 1
                       ? gradients.size()
                       : std::max<std::size_t>(buckets.bytes / sizeof(float), 1)),
      split_(split), timeline_(timeline) {}

std::vector<std::size_t> MultiWorker::bucket_bytes() const {
  std::vector<std::size_t> bytes;
  for (const Bucket& bucket : buckets_) {
    bytes.push_back((bucket.last - bucket.first) * sizeof(float));
  }
  return bytes;
}

void MultiWorker::note(Timeline::What what, double begin, double end) {
  if (timeline_ != nullptr) {
    timeline_->add(what, begin, end);
  }
}

Score MultiWorker::step(Mlp& model, const Batch& batch) {
  const double begin = now();
  seconds_input_ += batch.seconds;
  note(Timeline::What::input, begin - batch.seconds, begin);
  const float scale = 1.0F / static_cast<float>(batch.global_rows);
  buckets_.clear();
  std::size_t started = 0;
  const Score score = model.forward_backward(batch, scale, bucket_size_, [&](std::size_t ready) {
    if (ready - started >= bucket_size_ || ready == gradients_.size()) {
      const auto bucket = gradients_.subspan(started, ready - started);
      const double at = now();
      buckets_.push_back(
          {communicator_.start_all_reduce(bucket, "gradients", wire_), started, ready, at});
      started = ready;
    }
  });
  double at = now();
  seconds_computing_ += at - begin;
  note(Timeline::What::compute, begin, at);
  optimizer_.begin_step();
  for (const Bucket& bucket : buckets_) {
    communicator_.wait(bucket.ticket);
    const double done = now();
    seconds_exposed_ += done - at;
    note(Timeline::What::wait, at, done);
    note(Timeline::What::all_reduce, bucket.started, done);
    if (&bucket == &buckets_.back()) {
      seconds_under_way_ += done - buckets_.front().started;
    }
    optimizer_.update(bucket.first, bucket.last);
    at = now();
    note(Timeline::What::update, done, at);
  }
  communicator_.set_step(optimizer_.step());
  has_new_shares_ = split_ != nullptr && split_->after_step(seconds_input_ + seconds_computing_);
  return score;
}

} // namespace trainer
