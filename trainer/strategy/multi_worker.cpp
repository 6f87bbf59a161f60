#include "trainer/strategy/multi_worker.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/device/host_view.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

/// Outcomes that a device may owe, while the host goes on putting steps on its stream.
constexpr std::size_t k_steps_ahead = 2;

} // namespace

std::size_t bucket_floats(const Buckets& buckets, std::size_t gradients) {
  constexpr std::size_t k_least = (128 << 10) / sizeof(float);
  constexpr std::size_t k_most_buckets = 64;
  return buckets.bytes == 0 ? std::max(k_least, gradients / k_most_buckets)
                            : std::max<std::size_t>(buckets.bytes / sizeof(float), 1);
}

MultiWorker::MultiWorker(Communicator& communicator, Replica& replica, const StepOptions& options,
                         BatchSplit* split, Timeline* timeline)
    : communicator_(communicator), replica_(replica), gradients_(replica.gradients),
      wire_(options.buckets.wire), rows_at_once_(options.rows_at_once),
      clip_norm_(static_cast<float>(options.clip_norm)),
      bucket_size_(communicator.world_size() == 1
                       ? gradients_.size()
                       : bucket_floats(options.buckets, gradients_.size())),
      updates_at_once_(replica.behind_gradients.empty() && options.clip_norm == 0 &&
                       !replica.optimizer.needs_whole_tensors()),
      outcomes_(replica.device), ballot_(replica.behind_gradients), split_(split),
      timeline_(timeline) {}

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

void MultiWorker::give_up_on(const char* what, std::int64_t step) const {
  const HostView parameters(replica_.device, replica_.parameters.span());
  throw Error(fmt::format("{} no number any more at step {} on {}; look at {}; try a smaller "
                          "--learning-rate",
                          what, step, communicator_.name(communicator_.rank()),
                          replica_.model->tensors().suspect(parameters.values())));
}

/// Takes what has come of the steps so far, and waits while more than so many are under way.
void MultiWorker::look(std::size_t most_under_way) {
  while (outcomes_.under_way() > 0) {
    while (!outcomes_.has_come()) {
      if (outcomes_.under_way() <= most_under_way) {
        return;
      }
      communicator_.check();
      std::this_thread::yield();
    }
    const auto [step, outcome] = outcomes_.take();
    if (!std::isfinite(outcome.score.loss)) {
      give_up_on("the loss is", step);
    }
    if (!std::isfinite(outcome.norm)) {
      give_up_on("the gradients' norm is", step);
    }
    told_ += outcome.score;
  }
}

Score MultiWorker::settle() {
  look(0);
  return std::exchange(told_, {});
}

Score MultiWorker::step(const Batch& batch) {
  const double begin = now();
  seconds_input_ += batch.seconds;
  note(Timeline::What::input, begin - batch.seconds, begin);
  std::fill(ballot_.begin(), ballot_.end(), 0.0F);
  if (!ballot_.empty()) {
    ballot_[k_wants_pause] = wants_pause_ ? 1.0F : 0.0F;
    ballot_[k_rows] = batch.is_padding ? 0.0F : static_cast<float>(batch.rows);
  }
  if (updates_at_once_) {
    replica_.optimizer.begin_step();
  }
  compute(batch);
  const double computed = now();
  seconds_computing_ += computed - begin;
  note(Timeline::What::compute, begin, computed);
  synchronise();
  if (!ballot_.empty()) {
    check_ballot(batch);
  }
  if (!updates_at_once_) {
    update();
  }
  communicator_.set_step(replica_.optimizer.step());
  has_new_shares_ = split_ != nullptr && split_->after_step(seconds_input_ + seconds_computing_);
  return std::exchange(told_, {});
}

void MultiWorker::compute(const Batch& batch) {
  const float scale = batch.is_padding ? 0.0F : 1.0F / static_cast<float>(batch.global_rows);
  const Hooks none;
  const Hooks last{.need = {},
                   .done = {},
                   .final = [this](std::size_t ready) { start(ready); },
                   .granularity = bucket_size_};
  buckets_.clear();
  started_ = 0;
  Outcome* const outcome = outcomes_.begin();
  for (std::size_t row = 0; row < batch.rows;) {
    const Batch part = batch.slice(row, rows_at_once_);
    const bool accumulate = row > 0;
    row += part.rows;
    replica_.model->forward_backward(part, scale, accumulate, row == batch.rows ? last : none,
                                     &outcome->score);
  }
  if (batch.is_padding) {
    replica_.device.stream().clear(&outcome->score, sizeof(Score)); // Its row counts for nothing.
  }
  outcomes_.send(replica_.optimizer.step() + (updates_at_once_ ? 0 : 1));
  look(k_steps_ahead);
}

/// The first `ready` gradients are final: what fills a bucket of them is on its way.
void MultiWorker::start(std::size_t ready) {
  const bool is_last = ready == gradients_.size();
  if (ready - started_ < bucket_size_ && !is_last) {
    return;
  }
  const std::size_t more = is_last && wire_ == WireType::fp32 ? ballot_.size() : 0;
  const std::span<float> bucket(gradients_.data() + started_, ready - started_ + more);
  const double at = now();
  buckets_.push_back(
      {communicator_.start_all_reduce(bucket, "gradients", wire_), started_, ready, at});
  started_ = ready;
  if (is_last && more < ballot_.size()) { // Its numbers need more bits than the gradients.
    buckets_.push_back({communicator_.start_all_reduce(ballot_, "ballot"), ready, ready, at});
  }
}

void MultiWorker::synchronise() {
  double at = now();
  double network_free = 0; // Buckets travel one after the other, and so lie their spans.
  for (const Bucket& bucket : buckets_) {
    communicator_.wait_in(replica_.device.stream(), bucket.ticket);
    const double done = now();
    seconds_exposed_ += done - at;
    note(Timeline::What::wait, at, done);
    note(Timeline::What::all_reduce, std::max(bucket.started, network_free), done);
    network_free = done;
    if (&bucket == &buckets_.back()) {
      seconds_under_way_ += done - buckets_.front().started;
    }
    at = done;
    if (updates_at_once_) {
      replica_.optimizer.update(bucket.first, bucket.last);
      at = now();
      note(Timeline::What::update, done, at);
    }
  }
}

void MultiWorker::update() {
  const double begin = now();
  const float* factor = nullptr;
  if (clip_norm_ > 0) {
    Device& device = replica_.device;
    Outcome* const outcome = outcomes_.begin();
    device.kernels().clip_factor(device.stream(), gradients_.size(), gradients_.data(), clip_norm_,
                                 &outcome->norm, &outcome->factor);
    factor = &outcome->factor;
    outcomes_.send(replica_.optimizer.step() + 1);
    look(k_steps_ahead);
  }
  replica_.optimizer.begin_step();
  replica_.optimizer.update(0, gradients_.size(), factor);
  note(Timeline::What::update, begin, now());
}

} // namespace trainer
