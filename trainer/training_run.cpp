#include "trainer/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trainer/data/loader.h"
#include "trainer/errors.h"
#include "trainer/evaluate.h"
#include "trainer/requeue.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/multi_worker.h"

namespace trainer {
namespace {

RankSeconds seconds_of(const MultiWorker& strategy) {
  return {.input = strategy.seconds_input(),
          .computing = strategy.seconds_computing(),
          .under_way = strategy.seconds_under_way(),
          .exposed = strategy.seconds_exposed()};
}

std::uint64_t rounded_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

} // namespace

TrainingRun::TrainingRun(const RunOptions& options, Device& device, const Dataset& data,
                         const AllSamples& samples, int ranks, bool is_elastic)
    : options_(options), device_(device), data_(data),
      settings_(make_run_settings(options, ranks, is_elastic, samples)) {
  settings_.data = digest(data);
  const std::string_view kernels = device_.kernels().arithmetic;
  kernels.copy(settings_.kernels.data(), settings_.kernels.size() - 1);
  progress_.seed = settings_.seed;
  progress_.samples = settings_.samples;
}

void TrainingRun::agree(Communicator& communicator, int source, bool is_new) {
  if (is_new) {
    check_same_settings(settings_, communicator);
  } else {
    join_settings(settings_, source, communicator);
  }
}

void TrainingRun::begin(Communicator& communicator, Outputs& outputs, int source, bool is_new) {
  if (!replica_) {
    replica_ =
        std::make_unique<Replica>(fitted(options_.model, data_), options_.optimizer, device_);
  }
  replica_->attach(communicator, settings_.end != 0 ? std::size_t{k_ballot_floats} : 0);
  if (is_new && communicator.rank() == source) {
    start_or_resume(outputs, communicator.world_size());
  }
  share_state(communicator, source);
}

/// Weights by the seed, or the newest checkpoint.
void TrainingRun::start_or_resume(Outputs& outputs, int ranks) {
  replica_->model->initialize(settings_.seed);
  if (options_.checkpoint_dir.empty()) {
    return;
  }
  remove_unfinished(options_.checkpoint_dir);
  if (!options_.resume && newest_checkpoint(options_.checkpoint_dir)) {
    throw UsageError(fmt::format("--checkpoint-dir={}: holds a checkpoint already; continue it "
                                 "with --resume, or give another folder",
                                 options_.checkpoint_dir));
  }
  const auto newest = newest_whole_checkpoint(options_.checkpoint_dir,
                                              [&](const std::string& text) { outputs.say(text); });
  if (newest) {
    progress_ = load_checkpoint(*newest, *replica_, progress_);
    saved_at_ = progress_.step;
    outputs.resume_after(progress_.step);
    const std::int64_t last = last_step(ranks);
    outputs.say(fmt::format("resumed from {} at step {}{}", *newest, progress_.step,
                            last == settings_.steps ? "" : fmt::format("; the last is {}", last)));
  } else if (const auto damaged = newest_checkpoint(options_.checkpoint_dir)) {
    throw DataError(fmt::format("{}: damaged, and there is no whole one before it; take it away, "
                                "or give another --checkpoint-dir",
                                *damaged));
  } else if (options_.resume) {
    outputs.say(fmt::format("no checkpoint in {} yet: starting anew", options_.checkpoint_dir));
  }
}

/// The source's, bit for bit, on every rank. It is received beside the own one, which it replaces
/// once all is there: where this breaks off, every rank still has a whole state.
void TrainingRun::share_state(Communicator& communicator, int source) {
  Progress progress = progress_;
  communicator.broadcast(std::as_writable_bytes(std::span(&progress, 1)), source, "progress");
  std::vector<std::pair<std::span<float>, std::string>> arenas = {
      {replica_->parameters.span(), "parameters"}};
  for (const Optimizer::Moment& moment : replica_->optimizer.moments()) {
    arenas.emplace_back(moment.values.span(), moment.name);
  }
  std::vector<Buffer> received;
  for (const auto& [arena, name] : arenas) {
    Buffer& buffer = received.emplace_back(arena.size());
    device_.stream().copy(arena.data(), buffer.data(), arena.size_bytes());
    communicator.broadcast(std::as_writable_bytes(buffer.span()), source, name);
  }
  for (std::size_t i = 0; i < arenas.size(); ++i) {
    device_.stream().copy(received[i].data(), arenas[i].first.data(), received[i].bytes());
  }
  progress_ = progress;
  replica_->optimizer.set_step(progress_.step);
  has_state_ = true;
  communicator.set_step(progress_.step);
}

/// From where the run stands: what is behind may have been taken in global batches of another size.
std::int64_t TrainingRun::last_step(int ranks) const {
  const std::uint64_t end = settings_.end != 0 ? settings_.end : settings_.epochs_end;
  if (end == 0) {
    return settings_.steps;
  }
  const auto global_batch =
      static_cast<std::uint64_t>(settings_.batch_size) * static_cast<std::uint64_t>(ranks);
  const std::uint64_t left = end - std::min(end, progress_.position);
  return progress_.step + static_cast<std::int64_t>(options_.drop_remainder
                                                        ? left / global_batch
                                                        : rounded_up(left, global_batch));
}

bool TrainingRun::is_logged_step(std::int64_t steps) const {
  return progress_.step % settings_.log_every == 0 || progress_.step == steps;
}

/// The line of a step that all have trained, but whose line was lost with a rank: it is of those
/// that go on. Where some of them had come so far that they need not add to it, rank 0 has it, or
/// the others' part of it. A collective.
void TrainingRun::make_up_for_line(Metrics& metrics, double epoch, Outputs& outputs) {
  if (last_line_) {
    outputs.line_once(*last_line_);
  }
  if (const auto line = metrics.line(progress_.step, epoch, {})) {
    outputs.line_once(*line);
  }
}

bool TrainingRun::train(Communicator& communicator, Outputs& outputs,
                        const std::function<bool()>& wants_pause) {
  const auto batch_size = static_cast<std::size_t>(settings_.batch_size);
  const bool is_elastic = settings_.end != 0;
  const std::int64_t steps = last_step(communicator.world_size());
  progress_.global_batch = batch_size * static_cast<std::size_t>(communicator.world_size());
  BatchSplit split(settings_.split_by_speed != 0, batch_size, communicator);
  MultiWorker strategy(communicator, *replica_, options_.step, &split,
                       settings_.timeline != 0 ? &timeline_ : nullptr);
  LoaderOptions input =
      loader_options(data_, batch_size, communicator.rank(), communicator.world_size(),
                     settings_.seed, settings_.samples);
  input.start = progress_.position;
  input.steps = std::max<std::int64_t>(steps - progress_.step, 0);
  input.end = settings_.one_pass != 0 ? settings_.samples : settings_.end;
  input.while_waiting = [&communicator] { communicator.check(); };
  Loader loader(data_.train, device_, input);
  Metrics metrics(communicator, unlogged_);
  StragglerWatch stragglers;
  if (is_elastic && is_logged_step(steps)) {
    make_up_for_line(metrics, loader.epochs(), outputs);
  }

  for (const Batch& batch : loader) {
    replica_->optimizer.set_learning_rate(
        settings_.learning_rate.at(static_cast<double>(progress_.position)));
    strategy.ask_for_pause(wants_pause());
    Score score = strategy.step(batch);
    progress_.step = replica_->optimizer.step();
    progress_.position = loader.position();
    const bool is_saved =
        settings_.checkpoint_every > 0 && progress_.step % settings_.checkpoint_every == 0;
    if (is_saved || is_logged_step(steps)) {
      score += strategy.settle();
    }
    metrics.add(score);
    outputs.progress(progress_.step, steps);
    if (strategy.has_new_shares()) {
      loader.set_share(split.first(), split.rows());
      outputs.new_shares(split.all_rows(), batch.global_rows);
    }
    if (is_logged_step(steps)) {
      const bool is_first = !last_line_;
      last_line_ = metrics.line(progress_.step, loader.epochs(), seconds_of(strategy));
      if (last_line_) {
        // One that was stopped in there may have been taken for lost, and its line written.
        is_elastic && !is_first ? outputs.line_once(*last_line_) : outputs.line(*last_line_);
        if (const auto rank = stragglers.look(*last_line_)) {
          outputs.straggler(communicator.name(*rank), *last_line_, settings_.split_by_speed != 0);
        }
      }
    }
    if (is_saved) {
      save(communicator);
    }
    if (communicator.rank() == 0 && progress_.step < steps && requeue_is_asked()) {
      make_room(communicator);
    }
    if (strategy.pauses() && progress_.step < steps) {
      return false;
    }
  }
  return true;
}

void TrainingRun::finish(Communicator& communicator, Outputs& outputs) {
  if (saved_at_ != progress_.step) {
    save(communicator);
  }
  outputs.held_out(
      evaluate(*replica_->model, data_.test, device_, options_.step.rows_at_once, communicator),
      progress_.step);
  if (settings_.timeline != 0) {
    timeline_.write(options_.timeline, communicator);
  }
}

/// The other ranks need not be at the same step: what rank 0 has is one whole step's.
void TrainingRun::make_room(const Communicator& communicator) {
  if (saved_at_ != progress_.step) {
    save(communicator);
  }
  throw Requeue(fmt::format("asked by SIGUSR1 to make room: step {} is saved in {}, and --resume "
                            "goes on from there",
                            progress_.step, options_.checkpoint_dir));
}

void TrainingRun::save(const Communicator& communicator) {
  if (communicator.rank() == 0 && !options_.checkpoint_dir.empty()) {
    save_checkpoint(options_.checkpoint_dir, *replica_, progress_);
  }
  saved_at_ = progress_.step;
}

} // namespace trainer
