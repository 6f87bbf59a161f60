#include "trainer/strategy/training_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trainer/collectives/records.h"
#include "trainer/errors.h"
#include "trainer/strategy/reduced.h"

namespace trainer {
namespace {

/// Outcomes that a device may owe, while the host goes on putting steps on its stream.
constexpr std::size_t k_steps_ahead = 2;

} // namespace

TrainingStep::TrainingStep(Communicator& communicator, Replica& replica, const StepOptions& options,
                           BatchSplit* split, Timeline* timeline)
    : TrainingStep(communicator, replica, options,
                   std::make_unique<Reduced>(communicator, replica, options.buckets,
                                             options.limits(replica.precision).need_norm(),
                                             timeline),
                   split) {}

TrainingStep::TrainingStep(Communicator& communicator, Replica& replica, const StepOptions& options,
                           std::unique_ptr<Exchange> exchange, BatchSplit* split)
    : communicator_(communicator), replica_(replica), gradients_(replica.gradients),
      limits_(options.limits(replica.precision)), exchange_(std::move(exchange)),
      updates_(exchange_->updates()),
      steps_ahead_(updates_ == Exchange::Updates::elsewhere ? 0 : k_steps_ahead),
      passes_(
          *replica.model, replica.device, options.rows_at_once, exchange_->buckets().front().size(),
          !replica.device.is_host() &&
              (updates_ == Exchange::Updates::with_pass ||
               (updates_ == Exchange::Updates::elsewhere && exchange_->buckets().size() == 1)),
          [this](std::size_t count) { start(count); },
          [this](std::size_t count) { exchange_->release(count); }),
      outcomes_(replica.device), votes_(replica.registered), split_(split) {
  replica.optimizer.set_limits(limits_);
}

void TrainingStep::check_votes(const Batch& batch) const {
  const auto rows = static_cast<std::size_t>(votes_[k_rows]);
  if (rows != batch.global_rows) {
    throw Error(
        fmt::format("the ranks have taken {} samples of a step of {}", rows, batch.global_rows));
  }
}

std::vector<std::size_t> TrainingStep::bucket_bytes() const {
  std::vector<std::size_t> bytes;
  for (const ArenaRange& bucket : exchange_->buckets()) {
    bytes.push_back(bucket.size() * sizeof(float));
  }
  return bytes;
}

void TrainingStep::throw_not_finite(const std::string& what, std::int64_t step) const {
  throw Error(fmt::format("{} became NaN or infinite at step {} on {}; look at {}; try a smaller "
                          "--learning-rate",
                          what, step, communicator_.name(communicator_.rank()),
                          replica_.suspect()));
}

void TrainingStep::send_outcome(std::int64_t step, std::shared_ptr<const Event> came,
                                bool has_state, bool counts) {
  outcomes_.send(step, std::move(came), has_state, counts);
  marked_.push_back(clock().marked());
}

/// Takes what has come of the steps so far, and waits while more than so many are under way.
void TrainingStep::collect(std::size_t most_under_way) {
  while (outcomes_.under_way() > 0) {
    while (!outcomes_.has_come()) {
      if (outcomes_.under_way() <= most_under_way) {
        return;
      }
      communicator_.check();
      exchange_->advance();
      std::this_thread::yield();
    }
    if (!replica_.device.is_host()) {
      communicator_.check(); // What came of sums that were broken off says nothing.
    }
    const Outcome outcome = outcomes_.take();
    exchange_->clock().read(marked_.front());
    marked_.pop_front();
    if (!std::isfinite(outcome.score.loss)) {
      throw_not_finite("the loss", outcome.step);
    }
    finished_score_ += outcome.score;
    if (outcome.state) {
      const LossScale before = replica_.optimizer.seen().loss_scale;
      replica_.optimizer.see(*outcome.state);
      if (is_skipped(*outcome.state)) {
        report_skipped(*outcome.state, before.scale);
      }
    }
  }
}

Score TrainingStep::settle() {
  exchange_->join();
  collect(0);
  while (!exchange_->clock().read_passed()) { // Of what follows the last outcome.
    communicator_.check();
    std::this_thread::yield();
  }
  return std::exchange(finished_score_, {});
}

Score TrainingStep::run(const Batch& batch) {
  exchange_->clock().begin(batch.seconds, batch.rows);
  std::fill(votes_.begin(), votes_.end(), 0.0F);
  if (!votes_.empty()) {
    votes_[k_wants_pause] = wants_pause_ ? 1.0F : 0.0F;
    votes_[k_rows] = static_cast<float>(batch.counted());
  }
  overflow_.clear();
  Seen& seen = *outcomes_.begin();
  seen.state = replica_.optimizer.announce_step(batch.weight * batch.global_rows,
                                                batch.gathering ? &*batch.gathering : nullptr);
  if (!updates_last()) {
    replica_.optimizer.begin_step();
  }
  exchange_->begin(batch);
  compute(batch, seen);
  if (replica_.device.is_host()) {
    before_update_();
  }
  exchange_->synchronise();
  if (!votes_.empty()) {
    check_votes(batch);
  }
  if (updates_last()) {
    update();
  } else if (is_elastic()) { // Alone.
    collect(0);
  }
  if (const std::int64_t step = exchange_->receive(); step != replica_.optimizer.step()) {
    replica_.optimizer.set_state(step, 0, replica_.optimizer.seen().loss_scale);
  }
  communicator_.set_step(replica_.optimizer.step());
  has_new_shares_ = split_ != nullptr && split_->after_step(clock().done());
  return std::exchange(finished_score_, {});
}

void TrainingStep::compute(const Batch& batch, Seen& seen) {
  const StepState* const state = replica_.optimizer.state();
  ParameterOwner& owner = exchange_->owner();
  first_overflow_ = UINT64_MAX;
  started_ = 0;
  if (owner.is_shared()) { // As many passes as the rank with the most rows.
    const auto ranks = static_cast<std::size_t>(communicator_.world_size());
    const std::size_t most_rows = (batch.global_rows + ranks - 1) / ranks;
    const auto passes = [&](std::size_t rows) { return (rows - 1) / passes_.rows_at_once(); };
    for (std::size_t pass = passes(batch.rows); pass < passes(most_rows); ++pass) {
      owner.begin_pass();
      replica_.model->rehearse(passes_.rows_at_once(), owner, [](std::size_t /*unit*/) {});
    }
  }
  passes_.run(batch, &state->loss_factor, owner, &seen.score, [&] {
    if (updates_ == Exchange::Updates::with_pass) {
      put_update(&seen.state);
    }
  });
  start(gradients_.size());
  const bool has_state = !updates_last() || !limits_.need_norm(); // Else prepare() is to come.
  send_outcome(replica_.optimizer.step() + (updates_last() ? 1 : 0),
               exchange_->clock().lap(StepClock::Part::compute), has_state, batch.weight > 0);
  collect(steps_ahead_);
}

/// The first `ready` gradients are final: the buckets that they fill are on their way.
void TrainingStep::start(std::size_t ready) {
  const auto& buckets = exchange_->buckets();
  for (; started_ < buckets.size() && buckets[started_].last <= ready; ++started_) {
    if (replica_.rounds()) {
      round_gradients(buckets[started_]);
    }
    exchange_->start(started_);
  }
}

/// Of all parameters, from the gradients that the stream's kernels make.
void TrainingStep::put_update(StepState* copy) {
  if (limits_.need_norm()) {
    replica_.optimizer.prepare(exchange_->sum_squares(), copy);
  }
  exchange_->update({});
}

void TrainingStep::round_gradients(const ArenaRange& range) {
  const std::span<float> part = gradients_.subspan(range.first, range.size());
  if (!round_to(replica_.precision, part, part) && first_overflow_ == UINT64_MAX) {
    const auto wrong =
        std::find_if(part.begin(), part.end(), [](float value) { return !std::isfinite(value); });
    first_overflow_ = range.first + static_cast<std::size_t>(wrong - part.begin());
  }
}

/// Of a step that the device has skipped, as the gradients' norm was no number; in 16 bits that is
/// an overflow. On the host all ranks look at it in the same step, and tell each other whose
/// gradients it was; a GPU knows which tensor's, of the sum over the ranks.
void TrainingStep::report_skipped(const StepState& state, double scale_before) {
  const auto gradient_at = [&](std::uint64_t place) {
    return "the gradient of " + replica_.model->tensors().holder(place).name;
  };
  std::string what = std::isinf(state.not_finite)
                         ? "the gradients' norm"
                         : gradient_at(static_cast<std::uint64_t>(state.not_finite));
  if (!is_mixed()) {
    throw_not_finite(what, state.step);
  }
  std::string where;
  if (replica_.device.is_host()) {
    const auto all = all_gather(communicator_, first_overflow_, "overflow");
    const auto first = std::min_element(all.begin(), all.end()); // The one that backward met first.
    if (*first != UINT64_MAX) {
      what = gradient_at(*first);
      where = " on " + communicator_.name(static_cast<int>(first - all.begin()));
    }
  }
  const std::string found = fmt::format("step {}: {} is no finite {}{}", state.step, what,
                                        precision_name(replica_.precision), where);
  if (state.is_at_least != 0) {
    throw Error(fmt::format("{}, at the least loss scale, {:g}; try --precision=bf16 or a smaller "
                            "--learning-rate",
                            found, scale_before));
  }
  overflow_ += fmt::format(
      "{}{}; it is skipped{}", overflow_.empty() ? "" : "\n", found,
      limits_.loss_scale.is_dynamic()
          ? fmt::format(", loss scale {:g} → {:g}", scale_before, state.loss_scale.scale)
          : "");
}

void TrainingStep::update() {
  exchange_->clock().skip();
  if (limits_.need_norm()) {
    replica_.optimizer.prepare(exchange_->sum_squares(),
                               &outcomes_.begin()->state); // The score was sent.
    send_outcome(replica_.optimizer.step() + 1, replica_.device.stream().record(), true);
  }
  // Elastic ranks know how a step went before it counts: nothing throws behind that.
  collect(is_elastic() ? 0 : steps_ahead_);
  replica_.optimizer.begin_step();
  exchange_->update(finished_score_);
  exchange_->clock().lap(StepClock::Part::update);
}

} // namespace trainer
