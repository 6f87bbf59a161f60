#include "trainer/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/checkpoint/hugging_face.h"
#include "trainer/data/loader.h"
#include "trainer/device/host_view.h"
#include "trainer/errors.h"
#include "trainer/monitor/figures.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/requeue.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/training_step.h"

namespace trainer {
namespace {

/// On a GPU it is the GPU that waits for other ranks, and the host goes on.
RankSeconds seconds_of(const TrainingStep& training, const Communicator& communicator,
                       const Device& device) {
  const StepClock& clock = training.clock();
  return {.input = clock.seconds_input(),
          .computing = clock.seconds_computing(),
          .under_way = clock.seconds_under_way(),
          .exposed = clock.seconds_exposed(),
          .waiting = device.is_host() ? communicator.seconds_waiting() : clock.seconds_exposed()};
}

std::uint64_t rounded_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

} // namespace

TrainingRun::TrainingRun(const RunOptions& options, Device& device, const Dataset& data,
                         const AllSamples& samples, int ranks, bool is_elastic)
    : options_(options), device_(device), data_(data),
      settings_(make_run_settings(options, ranks, is_elastic, samples)),
      saver_(std::in_place, !options.offload.is_to_files()) {
  set_matmul_precision(device, options.matmul_precision);
  settings_.data = digest(data);
  const CpuKernels* const cpu = device_.cpu_kernels();
  const bool is_other =
      cpu != nullptr && cpu->bf16_arithmetic != nullptr && options.precision == Precision::bf16;
  const std::string_view kernels = is_other ? cpu->bf16_arithmetic : device_.kernels().arithmetic;
  kernels.copy(settings_.kernels.data(), settings_.kernels.size() - 1);
  progress_ = first_progress();
}

Progress TrainingRun::first_progress() const {
  Progress progress;
  progress.seed = settings_.seed;
  progress.samples = settings_.samples;
  if (options_.precision != Precision::fp32) {
    progress.loss_scale = first_loss_scale(settings_.loss_scale);
  }
  return progress;
}

void TrainingRun::agree(Communicator& communicator, int source, bool is_new) {
  if (is_new) {
    check_same_settings(settings_, communicator);
  } else {
    join_settings(settings_, source, communicator);
  }
}

bool TrainingRun::is_complete() const {
  if (!has_state_ || progress_.position < settings_.end) {
    return false;
  }
  return !goes_back() || is_saved(options_.checkpoint_dir, progress_.step);
}

/// Computed from the position in the data: earlier steps may have had another global batch size.
std::int64_t TrainingRun::last_step(int ranks) const {
  const std::uint64_t end = settings_.end != 0 ? settings_.end : settings_.epochs_end;
  if (end == 0) {
    return settings_.steps;
  }
  const std::uint64_t global_batch = settings_.global_rows(ranks);
  const std::uint64_t left = end - std::min(end, progress_.position);
  return progress_.step + static_cast<std::int64_t>(options_.drop_remainder
                                                        ? left / global_batch
                                                        : rounded_up(left, global_batch));
}

bool TrainingRun::is_logged_step(std::int64_t steps) const {
  return progress_.step % settings_.log_every == 0 || progress_.step == steps;
}

/// Writes the line of a step that was trained, but whose line was lost with a rank. It covers the
/// ranks that go on. If some of them had already added their part, rank 0 has the line, or the
/// part of the others. A collective.
void TrainingRun::make_up_for_line(Metrics& metrics, double epoch, Outputs& outputs) {
  if (last_line_) {
    outputs.line_once(*last_line_);
  }
  if (const auto line = metrics.line(progress_.step, epoch, RankSeconds{})) {
    outputs.line_once(*line);
  }
}

bool TrainingRun::train(Communicator& communicator, Outputs& outputs,
                        const std::function<bool()>& wants_pause) {
  const auto batch_size = static_cast<std::size_t>(settings_.batch_size);
  const bool is_elastic = settings_.end != 0;
  const std::int64_t steps = last_step(communicator.world_size());
  progress_.global_batch = settings_.global_rows(communicator.world_size());
  BatchSplit split(settings_.split_by_speed != 0, batch_size, communicator);
  TrainingStep training(communicator, *replica_, options_.step, &split,
                        settings_.timeline != 0 ? &timeline_ : nullptr);
  const bool stops_together = is_shared() || goes_back();
  training.set_before_update([this] { saver_->wait_until_copied(); });
  SamplerOptions sampling =
      sampler_options(data_, batch_size, communicator.rank(), communicator.world_size(),
                      settings_.seed, settings_.samples);
  sampling.global_batch = static_cast<std::size_t>(settings_.global_batch);
  sampling.start = progress_.position;
  sampling.steps = std::max<std::int64_t>(steps - progress_.step, 0);
  sampling.end = settings_.one_pass != 0 ? settings_.samples : settings_.end;
  Loader loader(
      data_.train, device_, sampling,
      {.while_waiting = [&communicator] { communicator.check(); }, .leaves_gathering = true});
  Metrics metrics(communicator, unlogged_);
  StragglerWatch stragglers;
  if (is_elastic && is_logged_step(steps)) {
    make_up_for_line(metrics, loader.epochs(), outputs);
  }

  for (const Batch& batch : loader) {
    // As DeepSpeed's schedules, those that count updates do not advance in a skipped step.
    const LearningRate& rate = settings_.learning_rate;
    Optimizer::Rates rates;
    for (std::size_t more = 0; more < rates.size();
         ++more) { // Skipped steps that were not reported yet.
      const auto skipped = replica_->optimizer.seen().skipped + static_cast<std::int64_t>(more);
      const double behind =
          goes_by_updates(rate.schedule) ? static_cast<double>(skipped) * rate.update : 0.0;
      rates[more] = rate.at(static_cast<double>(progress_.position) - behind);
    }
    replica_->optimizer.set_learning_rates(rates);
    training.ask_for_pause(wants_pause() ||
                           (stops_together && communicator.rank() == 0 && requeue_is_asked()));
    Score score = training.run(batch);
    progress_.step = replica_->optimizer.step();
    progress_.position = loader.position();
    const bool is_saved =
        settings_.checkpoint_every > 0 && progress_.step % settings_.checkpoint_every == 0;
    if (is_saved || is_logged_step(steps)) {
      score += training.settle();
    }
    note_state();
    if (!training.overflow().empty()) {
      outputs.say(training.overflow());
    }
    metrics.add(score, batch.counted());
    outputs.progress(progress_.step, steps);
    if (training.has_new_shares()) {
      loader.set_share(split.first(), split.rows());
      outputs.new_shares(split.all_rows(), batch.global_rows);
    }
    if (is_logged_step(steps)) {
      const bool is_first = !last_line_;
      last_line_ = metrics.line(progress_.step, loader.epochs(),
                                seconds_of(training, communicator, device_));
      if (last_line_) {
        last_line_->learning_rate = replica_->optimizer.seen().learning_rate;
        if (options_.precision != Precision::fp32) {
          last_line_->loss_scale = progress_.loss_scale.scale;
        }
        // A rank suspended here may have been counted as lost, and its line written.
        is_elastic && !is_first && !goes_back() ? outputs.line_once(*last_line_)
                                                : outputs.line(*last_line_);
        if (const auto rank = stragglers.look(*last_line_)) {
          outputs.straggler(communicator.name(*rank), *last_line_, settings_.split_by_speed != 0);
        }
      }
    }
    if (is_saved) {
      save(communicator);
    }
    const bool stops =
        stops_together ? training.pauses() : communicator.rank() == 0 && requeue_is_asked();
    if (stops && progress_.step < steps) {
      training.settle();
      note_state();
      save_and_wait(communicator);
      if (!goes_back() || requeue_is_asked()) { // Else others have come, or rank 0 stops alone.
        make_room();
      }
    }
    if (training.pauses() && progress_.step < steps) {
      return false;
    }
  }
  return true;
}

/// State of the optimizer as last reported by the device.
void TrainingRun::note_state() {
  progress_.skipped = replica_->optimizer.seen().skipped;
  progress_.loss_scale = replica_->optimizer.seen().loss_scale;
}

void TrainingRun::finish(Communicator& communicator, Outputs& outputs) {
  if (saved_at_ != progress_.step) {
    save(communicator);
  }
  saver_->wait(communicator);
  if (!options_.export_folder.empty()) {
    export_weights(communicator);
  }
  outputs.held_out(score_held_out(communicator), progress_.step, scored_things(data_));
  if (!device_.is_host() && last_line_) {
    const SampleSource& source = *data_.train.source;
    outputs.say(figures_text(last_line_->samples_per_second / communicator.world_size(),
                             source.kind().is_text() ? source.width(field::Name::ids) : 0,
                             replica_->model->flops(), device_));
  }
  if (settings_.timeline != 0) {
    timeline_.write(options_.timeline, communicator);
  }
}

void TrainingRun::export_weights(Communicator& communicator) {
  const bool is_first = communicator.rank() == 0;
  const auto write = [&](std::span<const float> weights) {
    save_weights(options_.export_folder, replica_->model->tensors(), weights);
    describe_model(options_.export_folder);
  };
  if (replica_->sharding.stage == 3) {
    const Buffer whole = Buffer::paged(is_first ? replica_->parameters.size() : 0, DType::f32);
    gather_buckets(communicator, device_, replica_->shards(communicator), replica_->own_chunks(),
                   [&](const ArenaRange& bucket, std::span<const float> values) {
                     if (is_first) {
                       std::copy(values.begin(), values.end(), whole.data() + bucket.first);
                     }
                   });
    if (is_first) {
      write(whole.span());
    }
  } else if (is_first) {
    write(HostView(device_, replica_->parameters).values());
  }
}

Score TrainingRun::score_held_out(Communicator& communicator) {
  const auto owner = replica_->make_owner(communicator);
  return evaluate(*replica_->model, *owner, data_.test, device_, options_.step.rows_at_once,
                  communicator);
}

/// Of rank 0, whose state belongs to one step, where others may be at another; of all ranks that
/// share a replica, which are at the same step, as each holds a part of it.
void TrainingRun::save_and_wait(Communicator& communicator) {
  if (saved_at_ != progress_.step) {
    save(communicator);
  }
  saver_->wait(communicator);
  if (is_shared()) {
    communicator.barrier("checkpoint"); // All is saved: a rank may leave from here on.
  }
}

void TrainingRun::make_room() const {
  throw Requeue(fmt::format("stopped by {}: step {} is saved in {}, and --resume continues from it",
                            requeue_signal(), progress_.step, options_.checkpoint_dir));
}

void TrainingRun::save(Communicator& communicator) {
  if (!options_.checkpoint_dir.empty()) {
    if (!device_.is_host()) { // Partial sums of an aborted collective must not be in it.
      device_.stream().record()->wait();
      communicator.check();
    }
    saver_->save(options_.checkpoint_dir, *replica_, progress_, communicator,
                 static_cast<std::size_t>(options_.keep));
  }
  saved_at_ = progress_.step;
}

} // namespace trainer
