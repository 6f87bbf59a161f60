#include "trainer/strategy/multi_worker.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/collectives/records.h"
#include "trainer/device/host_view.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

/// Outcomes that a device may owe, while the host goes on putting steps on its stream.
constexpr std::size_t k_steps_ahead = 2;
/// Float64 from a rank's sum of squares to the next one's: each is its rank's chunk of them.
constexpr std::size_t k_apart = 16;

} // namespace

MultiWorker::MultiWorker(Communicator& communicator, Replica& replica, const StepOptions& options,
                         BatchSplit* split, Timeline* timeline)
    : communicator_(communicator), replica_(replica), gradients_(replica.gradients),
      wire_(options.buckets.wire), limits_{options.clip_norm, is_mixed(), options.loss_scale},
      shards_(gradients_.size(), options.buckets, communicator.rank(), communicator.world_size()),
      owner_(replica.make_owner(communicator)),
      gathered_(replica.sharding.stage == 3 ? static_cast<Gathered*>(owner_.get()) : nullptr),
      squares_memory_(0),
      updates_(communicator.world_size() == 1 && !replica.device.is_host() ? Updates::with_pass
               : (replica.registered.empty() || is_own_chunks_only()) && !limits_.need_norm() &&
                       !replica.optimizer.needs_whole_tensors()
                   ? Updates::at_once
                   : Updates::together),
      passes_(*replica.model, replica.device, options.rows_at_once,
              shards_.buckets().front().size(), updates_ == Updates::with_pass,
              [this](std::size_t count) { start(count); }),
      outcomes_(replica.device), votes_(replica.registered), split_(split), timeline_(timeline) {
  replica.optimizer.set_limits(limits_);
  if (limits_.need_norm()) {
    const std::size_t count =
        k_apart * static_cast<std::size_t>(shards_.ranks()) + 1 + shards_.buckets().size();
    if (is_own_chunks_only()) {
      constexpr std::size_t k_floats = sizeof(double) / sizeof(float);
      squares_ =
          reinterpret_cast<double*>(communicator.allocate_on_device(k_floats * count).data());
    } else {
      squares_memory_ = replica.device.allocate(count, DType::f64);
      squares_ = static_cast<double*>(squares_memory_.memory());
    }
  }
}

void MultiWorker::check_votes(const Batch& batch) const {
  const auto rows = static_cast<std::size_t>(votes_[k_rows]);
  if (rows != batch.global_rows) {
    throw Error(
        fmt::format("the ranks have taken {} samples of a step of {}", rows, batch.global_rows));
  }
}

std::vector<std::size_t> MultiWorker::bucket_bytes() const {
  std::vector<std::size_t> bytes;
  for (const ArenaRange& bucket : shards_.buckets()) {
    bytes.push_back(bucket.size() * sizeof(float));
  }
  return bytes;
}

void MultiWorker::note(Timeline::What what, double begin, double end) {
  if (timeline_ != nullptr) {
    timeline_->add(what, begin, end);
  }
}

void MultiWorker::give_up_on(const char* what, std::int64_t step) const {
  const HostView parameters(replica_.device, replica_.parameters);
  throw Error(fmt::format("{} became NaN or infinite at step {} on {}; look at {}; try a smaller "
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
    if (!replica_.device.is_host()) {
      communicator_.check(); // What came of sums that were broken off says nothing.
    }
    const Outcome outcome = outcomes_.take();
    if (!std::isfinite(outcome.score.loss)) {
      give_up_on("the loss", outcome.step);
    }
    told_ += outcome.score;
    if (outcome.state) {
      const LossScale before = replica_.optimizer.seen().loss_scale;
      replica_.optimizer.see(*outcome.state);
      if (is_skipped(*outcome.state)) {
        tell_of_skipped(*outcome.state, before.scale);
      }
    }
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
  std::fill(votes_.begin(), votes_.end(), 0.0F);
  if (!votes_.empty()) {
    votes_[k_wants_pause] = wants_pause_ ? 1.0F : 0.0F;
    votes_[k_rows] = static_cast<float>(batch.counted());
  }
  overflow_.clear();
  Seen& seen = *outcomes_.begin();
  seen.state = replica_.optimizer.announce_step(batch.weight * batch.global_rows,
                                                batch.gathering ? &*batch.gathering : nullptr);
  if (updates_ != Updates::together) {
    replica_.optimizer.begin_step();
  }
  const double exposed = seconds_exposed_;
  compute(batch, seen);
  const double computed = now();
  seconds_computing_ += computed - begin - (seconds_exposed_ - exposed);
  note(Timeline::What::compute, begin, computed);
  synchronise();
  if (!votes_.empty()) {
    check_votes(batch);
  }
  if (updates_ == Updates::together) {
    update();
  }
  communicator_.set_step(replica_.optimizer.step());
  has_new_shares_ = split_ != nullptr && split_->after_step(seconds_input_ + seconds_computing_);
  return std::exchange(told_, {});
}

void MultiWorker::compute(const Batch& batch, Seen& seen) {
  const StepState* const state = replica_.optimizer.state();
  first_overflow_ = UINT64_MAX;
  under_way_.clear();
  started_ = given_back_ = 0;
  if (gathered_ != nullptr) { // As many passes as the rank with the most rows.
    const auto ranks = static_cast<std::size_t>(shards_.ranks());
    const std::size_t most_rows = (batch.global_rows + ranks - 1) / ranks;
    const auto passes = [&](std::size_t rows) { return (rows - 1) / passes_.rows_at_once(); };
    for (std::size_t pass = passes(batch.rows); pass < passes(most_rows); ++pass) {
      owner_->begin_pass();
      replica_.model->rehearse(passes_.rows_at_once(), *owner_, [](std::size_t /*unit*/) {});
    }
  }
  passes_.run(batch, &state->loss_factor, *owner_, &seen.score, [&] {
    if (updates_ == Updates::with_pass) {
      put_update(&seen.state);
    }
  });
  start(gradients_.size());
  const bool is_behind = updates_ == Updates::together;
  const bool has_state = !is_behind || !limits_.need_norm(); // Else prepare() is to come.
  outcomes_.send(replica_.optimizer.step() + (is_behind ? 1 : 0), has_state, batch.weight > 0);
  look(k_steps_ahead);
}

/// The first `ready` gradients are final: the buckets that they fill are on their way.
void MultiWorker::start(std::size_t ready) {
  const auto& buckets = shards_.buckets();
  for (; started_ < buckets.size() && buckets[started_].last <= ready; ++started_) {
    const bool is_last = started_ + 1 == buckets.size();
    // Where all of a sum is everyone's, the votes are summed with it.
    const std::size_t more =
        is_last && !is_own_chunks_only() && wire_ == WireType::fp32 ? votes_.size() : 0;
    if (replica_.rounds()) {
      round_gradients(buckets[started_]);
    }
    const std::span<float> bucket(gradients_.data() + buckets[started_].first,
                                  buckets[started_].size() + more);
    const double at = now();
    const auto kind =
        is_own_chunks_only() ? Collective::Kind::reduce_scatter : Collective::Kind::all_reduce;
    under_way_.push_back({communicator_.start(kind, bucket, "gradients", wire_), started_, at});
    if (is_last && more < votes_.size()) { // Its numbers need more bits than the gradients.
      under_way_.push_back({communicator_.start_all_reduce(votes_, "votes"), k_no_bucket, at});
    }
    if (replica_.sharding.stage >= 2 && started_ + 1 >= k_sums_under_way) {
      give_back(started_ + 1 - k_sums_under_way);
      const double done = now();
      seconds_exposed_ += done - at;
      note(Timeline::What::wait, at, done);
    }
  }
}

/// Of the first so many buckets, once they are summed.
void MultiWorker::give_back(std::size_t buckets) {
  for (; given_back_ < buckets; ++given_back_) {
    communicator_.wait_in(replica_.device.stream(), under_way_[given_back_].ticket);
    discard_others(replica_.device, shards_, given_back_, gradients_);
  }
}

void MultiWorker::synchronise() {
  double at = now();
  double network_free = 0; // Buckets travel one after the other, and so lie their spans.
  for (const UnderWay& sum : under_way_) {
    communicator_.wait_in(replica_.device.stream(), sum.ticket);
    const double done = now();
    seconds_exposed_ += done - at;
    note(Timeline::What::wait, at, done);
    note(Timeline::What::all_reduce, std::max(sum.started, network_free), done);
    network_free = done;
    if (&sum == &under_way_.back()) {
      seconds_under_way_ += done - under_way_.front().started;
    }
    at = done;
    if (replica_.sharding.stage >= 2 && sum.bucket != k_no_bucket) {
      give_back(sum.bucket + 1);
    }
    if (updates_ == Updates::at_once && sum.bucket != k_no_bucket) {
      update(sum.bucket);
      at = now();
      note(Timeline::What::update, done, at);
    }
  }
  if (updates_ != Updates::together) {
    wait_for_parameters();
  }
}

/// Of all parameters, from the gradients that the stream's kernels make.
void MultiWorker::put_update(StepState* told) {
  if (limits_.need_norm()) {
    replica_.optimizer.prepare(sum_squares(), told);
  }
  replica_.optimizer.update(0, gradients_.size());
}

void MultiWorker::update(std::size_t bucket) {
  const ArenaRange& range = shards_.buckets()[bucket];
  replica_.optimizer.update(range.first, range.last);
  if (gathered_ != nullptr) {
    gathered_->put_away(bucket);
  } else if (is_own_chunks_only()) {
    gathers_.push_back(communicator_.start(Collective::Kind::all_gather,
                                           replica_.parameters.subspan(range.first, range.size()),
                                           "parameters"));
  }
}

/// Those that the other ranks have updated are here; at stage 3 they are gathered when needed.
void MultiWorker::wait_for_parameters() {
  const double begin = now();
  for (const Communicator::Ticket ticket : gathers_) {
    communicator_.wait_in(replica_.device.stream(), ticket);
  }
  if (!gathers_.empty()) {
    gathers_.clear();
    seconds_exposed_ += now() - begin;
    note(Timeline::What::wait, begin, now());
  }
  owner_->change();
}

/// Of the gradients that have come, in the device's memory, and no host waits for it: the sum of
/// squares of each chunk, of each rank's chunks, and of all ranks. Chunk by chunk and rank by rank,
/// so that it has the same bits whoever holds the chunks.
const double* MultiWorker::sum_squares() {
  Stream& stream = replica_.device.stream();
  const Kernels& kernels = replica_.device.kernels();
  const auto ranks = static_cast<std::size_t>(shards_.ranks());
  const std::size_t buckets = shards_.buckets().size();
  double* const total = squares_ + k_apart * ranks;
  double* const of_bucket = total + 1;
  if (!is_own_chunks_only() && !replica_.device.is_host()) { // One pass over all of them.
    kernels.squares(stream, gradients_.size(), gradients_.data(), total);
  } else {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (is_own_chunks_only() && static_cast<int>(rank) != communicator_.rank()) {
        continue;
      }
      for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
        const ArenaRange chunk = shards_.chunk(bucket, static_cast<int>(rank));
        if (chunk.size() == 0) {
          stream.clear(of_bucket + bucket, sizeof(double));
        } else {
          kernels.squares(stream, chunk.size(), gradients_.data() + chunk.first,
                          of_bucket + bucket);
        }
      }
      kernels.sum(stream, buckets, 1, of_bucket, squares_ + k_apart * rank);
    }
    if (is_own_chunks_only()) {
      const Range all(squares_, k_apart * ranks, DType::f64);
      communicator_.wait_in(stream, communicator_.start_all_gather(all, "squared norms"));
    }
    kernels.sum(stream, ranks, k_apart, squares_, total);
  }
  return total;
}

void MultiWorker::round_gradients(const ArenaRange& range) {
  const std::span<float> part = gradients_.subspan(range.first, range.size());
  if (!round_to(replica_.precision, part, part) && first_overflow_ == UINT64_MAX) {
    const auto wrong =
        std::find_if(part.begin(), part.end(), [](float value) { return !std::isfinite(value); });
    first_overflow_ = range.first + static_cast<std::size_t>(wrong - part.begin());
  }
}

/// Of a step that the device has skipped, as the gradients' norm was no number; in 16 bits that is
/// an overflow. On the host all ranks look at it in the same step, and tell each other whose
/// gradients it was.
void MultiWorker::tell_of_skipped(const StepState& state, double scale_before) {
  if (!is_mixed()) {
    give_up_on("the gradients' norm", state.step);
  }
  std::string what = "the gradients' norm";
  std::string where;
  if (replica_.device.is_host()) {
    const auto all = all_gather(communicator_, first_overflow_, "overflow");
    const auto first = std::min_element(all.begin(), all.end()); // The one that backward met first.
    if (*first != UINT64_MAX) {
      what = "the gradient of " + replica_.model->tensors().holder(*first).name;
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

void MultiWorker::update() {
  const double begin = now();
  if (limits_.need_norm()) {
    replica_.optimizer.prepare(sum_squares(), &outcomes_.begin()->state); // The score was sent.
    outcomes_.send(replica_.optimizer.step() + 1, true);
    look(k_steps_ahead);
  }
  replica_.optimizer.begin_step();
  if (is_own_chunks_only()) {
    for (std::size_t bucket = 0; bucket < shards_.buckets().size(); ++bucket) {
      update(bucket);
    }
  } else {
    replica_.optimizer.update(0, gradients_.size());
  }
  note(Timeline::What::update, begin, now());
  wait_for_parameters();
}

} // namespace trainer
