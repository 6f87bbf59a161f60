#include "trainer/strategy/multi_worker.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/errors.h"

namespace trainer {

MultiWorker::MultiWorker(Communicator& communicator, AdamOptimizer& optimizer,
                         std::span<float> gradients, Buckets buckets, BatchSplit* split,
                         Timeline* timeline, std::span<float> ballot)
    : communicator_(communicator), optimizer_(optimizer), gradients_(gradients),
      wire_(buckets.wire),
      bucket_size_(communicator.world_size() == 1
                       ? gradients.size()
                       : std::max<std::size_t>(buckets.bytes / sizeof(float), 1)),
      ballot_(ballot), split_(split), timeline_(timeline) {}

void MultiWorker::check_ballot(const Batch& batch) const {
  const auto rows = static_cast<std::size_t>(ballot_[k_rows]);
  if (rows != batch.global_rows) {
    throw Error(
        fmt::format("the ranks have taken {} samples of a step of {}", rows, batch.global_rows));
  }
}

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
  const float scale = batch.is_padding ? 0.0F : 1.0F / static_cast<float>(batch.global_rows);
  std::fill(ballot_.begin(), ballot_.end(), 0.0F);
  if (!ballot_.empty()) {
    ballot_[k_wants_pause] = wants_pause_ ? 1.0F : 0.0F;
    ballot_[k_rows] = batch.is_padding ? 0.0F : static_cast<float>(batch.rows);
  }
  buckets_.clear();
  std::size_t started = 0;
  Score score = model.forward_backward(batch, scale, bucket_size_, [&](std::size_t ready) {
    if (ready - started >= bucket_size_ || ready == gradients_.size()) {
      const bool is_last = ready == gradients_.size();
      const std::size_t more = is_last && wire_ == WireType::fp32 ? ballot_.size() : 0;
      const std::span<float> bucket(gradients_.data() + started, ready - started + more);
      const double at = now();
      buckets_.push_back(
          {communicator_.start_all_reduce(bucket, "gradients", wire_), started, ready, at});
      started = ready;
      if (is_last && more < ballot_.size()) { // Its numbers need more bits than the gradients.
        buckets_.push_back({communicator_.start_all_reduce(ballot_, "ballot"), ready, ready, at});
      }
    }
  });
  double at = now();
  seconds_computing_ += at - begin;
  note(Timeline::What::compute, begin, at);
  const bool at_once = ballot_.empty();
  if (at_once) {
    optimizer_.begin_step();
  }
  double network_free = 0; // Buckets travel one after the other, and so lie their spans.
  for (const Bucket& bucket : buckets_) {
    communicator_.wait(bucket.ticket);
    const double done = now();
    seconds_exposed_ += done - at;
    note(Timeline::What::wait, at, done);
    note(Timeline::What::all_reduce, std::max(bucket.started, network_free), done);
    network_free = done;
    if (&bucket == &buckets_.back()) {
      seconds_under_way_ += done - buckets_.front().started;
    }
    at = done;
    if (at_once) {
      optimizer_.update(bucket.first, bucket.last);
      at = now();
      note(Timeline::What::update, done, at);
    }
  }
  if (!at_once) {
    check_ballot(batch);
    optimizer_.begin_step();
    optimizer_.update(0, gradients_.size());
    note(Timeline::What::update, at, now());
  }
  if (batch.is_padding) {
    score = {};
  }
  communicator_.set_step(optimizer_.step());
  has_new_shares_ = split_ != nullptr && split_->after_step(seconds_input_ + seconds_computing_);
  return score;
}

} // namespace trainer
