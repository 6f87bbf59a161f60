#include "trainer/run/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "trainer/checkpoint/hugging_face.h"
#include "trainer/data/loader.h"
#include "trainer/device/host_view.h"
#include "trainer/device/unlinked_file.h"
#include "trainer/errors.h"
#include "trainer/monitor/figures.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/requeue.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/training_step.h"
#include "trainer/text/tokenizer.h"

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

/// 0: there is none.
std::size_t vocabulary_beside(const std::string& weights) {
  try {
    return load_tokenizer(weights)->vocabulary().size();
  } catch (const DataError&) {
    return 0;
  }
}

/// Of weights with more rows than --data has tokens: that the others are padding, and not the
/// tokens of another vocabulary.
void check_padding(const std::string& weights, const ModelOptions& model, const Dataset& data,
                   const std::function<void(const std::string&)>& say) {
  const std::size_t rows = model.transformer.vocabulary;
  const std::size_t tokens = data.train.source->kind().vocabulary;
  if (rows <= tokens) {
    return;
  }
  if (const std::size_t beside = vocabulary_beside(weights); beside != 0 && beside != tokens) {
    throw DataError(fmt::format("--initial-weights={0}: its vocabulary has {1} tokens, and that of "
                                "--data={2} has {3}; tokenize the text with --vocabulary={0}",
                                weights, beside, data.folder, tokens));
  }
  say(fmt::format("--initial-weights={}: has rows for {} tokens, and the vocabulary has {}; the "
                  "other {} are kept, as padding",
                  weights, rows, tokens, rows - tokens));
}

} // namespace

TrainingRun::TrainingRun(const RunOptions& options, Device& device, const Dataset& data,
                         const AllSamples& samples, int ranks, bool is_elastic)
    : options_(options), device_(device), data_(data),
      settings_(make_run_settings(options, ranks, is_elastic, samples)),
      saver_(!options.offload.is_to_files()) {
  set_matmul_precision(device, options.matmul_precision);
  settings_.data = digest(data);
  const CpuKernels* const cpu = device_.cpu_kernels();
  const bool is_other =
      cpu != nullptr && cpu->bf16_arithmetic != nullptr && options.precision == Precision::bf16;
  const std::string_view kernels = is_other ? cpu->bf16_arithmetic : device_.kernels().arithmetic;
  kernels.copy(settings_.kernels.data(), settings_.kernels.size() - 1);
  progress_.seed = settings_.seed;
  progress_.samples = settings_.samples;
  if (options.precision != Precision::fp32) {
    progress_.loss_scale = first_loss_scale(settings_.loss_scale);
  }
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
    replica_ = std::make_unique<Replica>(
        fitted(options_.model, data_), options_.optimizer, device_, communicator,
        Sharding{static_cast<int>(settings_.zero_stage), options_.step.buckets}, options_.offload);
  }
  if (replica_->precision != options_.precision) {
    replica_->compute_in(options_.precision);
  }
  saver_.wait_until_copied(); // The last step may have failed before it waited.
  const bool votes = settings_.end != 0 || is_shared();
  replica_->attach(communicator, votes ? std::size_t{k_vote_floats} : 0);
  if (const std::string& folder = options_.checkpoint_dir;
      is_shared() && !folder.empty() && !saver_.meet(folder, communicator)) {
    outputs.say(fmt::format("--checkpoint-dir={}: not every rank can write to this folder, so rank "
                            "0 saves everything; to save in parts use a shared folder",
                            folder));
  }
  if (is_new && communicator.rank() == source) {
    start_or_resume(outputs, communicator.world_size());
  }
  share_state(communicator, source);
}

/// Loads the newest checkpoint, or weights from a file, or draws them by the seed.
void TrainingRun::start_or_resume(Outputs& outputs, int ranks) {
  const auto say = [&](const std::string& text) { outputs.say(text); };
  const auto newest = checkpoint_to_resume(say);
  if (newest) {
    resume(*newest, outputs, ranks);
  } else {
    draw(say);
  }
  if (!options_.checkpoint_dir.empty()) {
    describe_model(options_.checkpoint_dir);
  }
}

/// Of ranks that share them, a GPU has no room for all weights, nor has one whose own are in a
/// file: they stay on the host, or in a file there, until each rank gets its own.
void TrainingRun::draw(const std::function<void(const std::string&)>& say) {
  const std::string& folder = options_.offload.parameters;
  const bool is_apart = is_shared() && (!device_.is_host() || !folder.empty());
  const std::size_t count = is_apart ? replica_->parameters.size() : 0;
  drawn_ = folder.empty() ? Buffer::paged(count, DType::f32) : file_backed(folder, count);
  std::optional<HostView> parameters;
  if (!is_apart) {
    parameters.emplace(device_, replica_->parameters);
  }
  const std::span<float> weights = is_apart ? drawn_.span() : parameters->values();
  replica_->model->initialize(settings_.seed, weights);
  if (!options_.initial_weights.empty()) {
    check_padding(options_.initial_weights, fitted(options_.model, data_), data_, say);
    load_weights(find_weights(options_.initial_weights, say), replica_->model->tensors(), weights);
  }
  if (parameters) {
    parameters->write_back();
  }
}

std::optional<std::string>
TrainingRun::checkpoint_to_resume(const std::function<void(const std::string&)>& say) const {
  const std::string& folder = options_.checkpoint_dir;
  if (folder.empty()) {
    return std::nullopt;
  }
  remove_unfinished(folder);
  const auto newest = newest_checkpoint(folder);
  if (newest && !options_.resume) {
    throw UsageError(fmt::format("--checkpoint-dir={}: already has a checkpoint; continue it with "
                                 "--resume, or give another folder",
                                 folder));
  }
  auto whole = newest_whole_checkpoint(folder, say);
  if (newest && !whole) {
    throw DataError(fmt::format("{}: damaged, and no earlier checkpoint is complete; remove it, or "
                                "give another --checkpoint-dir",
                                *newest));
  }
  if (options_.resume && !whole) {
    say(fmt::format("no checkpoint in {} yet: starting from the beginning", folder));
  }
  return whole;
}

void TrainingRun::resume(const std::string& path, Outputs& outputs, int ranks) {
  if (is_shared()) {
    loaded_ = std::make_unique<CheckpointReader>(path, *replica_, progress_);
    progress_ = loaded_->progress();
  } else {
    progress_ = load_checkpoint(path, *replica_, progress_);
  }
  saved_at_ = progress_.step;
  if (!settings_.loss_scale.is_dynamic()) { // Also when the checkpoint has another scale.
    progress_.loss_scale.scale = settings_.loss_scale.fixed;
  }
  outputs.resume_after(progress_.step);
  const std::int64_t last = last_step(ranks);
  outputs.say(fmt::format("resumed from {} at step {}{}", path, progress_.step,
                          last == settings_.steps ? "" : fmt::format("; the last is {}", last)));
}

/// The configuration that `fill` and Hugging Face's programs need beside the weights.
void TrainingRun::describe_model(const std::string& folder) const {
  if (data_.train.source->kind().is_text()) {
    save_model_config(fitted(options_.model, data_), data_.special, folder);
    copy_tokenizer(data_.folder, folder);
  }
}

/// Broadcasts the state of the source: afterwards every rank has the same bits.
void TrainingRun::share_state(Communicator& communicator, int source) {
  Progress progress = progress_;
  communicator.broadcast(std::as_writable_bytes(std::span(&progress, 1)), source, "progress");
  is_shared() ? scatter_arenas(communicator, source) : broadcast_arenas(communicator, source);
  progress_ = progress;
  replica_->optimizer.set_state(progress_.step, progress_.skipped, progress_.loss_scale);
  has_state_ = true;
  communicator.set_step(progress_.step);
}

/// A rank that has a state receives the new one beside it and replaces it once complete: if this
/// fails halfway, the rank still has a whole state.
void TrainingRun::broadcast_arenas(Communicator& communicator, int source) {
  std::vector<std::pair<StoredValues, std::string>> arenas = {
      {{replica_->parameters}, "parameters"}};
  for (const Optimizer::Moment& moment : replica_->optimizer.moments()) {
    arenas.emplace_back(moment.values, moment.name);
  }
  const std::size_t size = replica_->parameters.size();
  const bool is_source = communicator.rank() == source;
  const bool keeps = has_state_ && !is_source;
  std::vector<Buffer> received;
  for (const auto& [values, name] : arenas) {
    if (device_.is_host() && values.file == nullptr && !keeps) {
      communicator.broadcast(std::as_writable_bytes(values.memory), source, name);
      continue;
    }
    constexpr std::size_t k_part = std::size_t{1} << 20; // Of what need not fit into memory.
    const std::size_t most = values.file == nullptr ? size : k_part;
    const Buffer& room = received.emplace_back(keeps ? size : std::min(size, most));
    for (std::size_t at = 0; at < size; at += most) {
      const auto part = room.span().subspan(keeps ? at : 0, std::min(most, size - at));
      if (is_source) {
        values.read(device_, at, part);
      }
      communicator.broadcast(std::as_writable_bytes(part), source, name);
      if (!is_source && !keeps) {
        values.write(device_, at, part);
      }
    }
  }
  for (std::size_t i = 0; keeps && i < arenas.size(); ++i) {
    arenas[i].first.write(device_, 0, received[i].span());
  }
}

/// Each rank gets the chunks that it owns, and below stage 3 all parameters. Where all ranks see
/// the checkpoint, each reads them itself.
void TrainingRun::scatter_arenas(Communicator& communicator, int source) {
  // Saving is a collective, so all ranks must agree on what is saved.
  std::array<std::int64_t, 2> known = {loaded_ ? 1 : 0, saved_at_};
  communicator.broadcast(std::as_writable_bytes(std::span(known)), source, "loaded");
  const bool is_loaded = known[0] != 0;
  saved_at_ = known[1];
  const bool read_own = is_loaded && saver_.has_met();
  if (read_own && !loaded_) {
    loaded_ = std::make_unique<CheckpointReader>(
        numbered_file(options_.checkpoint_dir, saved_at_).path, *replica_, progress_);
  }
  const Shards shards = replica_->shards(communicator);
  const auto scatter = [&](std::size_t arena, const OwnChunks& own) {
    const float* const drawn = (drawn_.size() > 0 ? drawn_.span() : replica_->parameters).data();
    const auto fill = [&](const ArenaRange& range, std::span<float> to) {
      loaded_ ? loaded_->read(arena, range, to)
              : (void)std::copy_n(drawn + range.first, to.size(), to.data());
    };
    read_own ? fill_chunks(device_, shards, fill, own)
             : scatter_buckets(communicator, device_, shards, source, fill, own);
  };
  scatter(0, replica_->own_chunks());
  if (settings_.zero_stage < 3) {
    gather_arena(communicator, device_, shards, replica_->parameters);
  }
  if (is_loaded) {
    for (std::size_t i = 0; i < replica_->optimizer.moments().size(); ++i) {
      scatter(1 + i, {replica_->optimizer.moments()[i].values, false});
    }
  }
  loaded_.reset();
  drawn_ = Buffer(0);
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
  training.set_before_update([this] { saver_.wait_until_copied(); });
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
                           (is_shared() && communicator.rank() == 0 && requeue_is_asked()));
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
        is_elastic && !is_first ? outputs.line_once(*last_line_) : outputs.line(*last_line_);
        if (const auto rank = stragglers.look(*last_line_)) {
          outputs.straggler(communicator.name(*rank), *last_line_, settings_.split_by_speed != 0);
        }
      }
    }
    if (is_saved) {
      save(communicator);
    }
    const bool makes_room =
        is_shared() ? training.pauses() : communicator.rank() == 0 && requeue_is_asked();
    if (makes_room && progress_.step < steps) {
      training.settle();
      note_state();
      make_room(communicator);
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
  saver_.wait(communicator);
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

/// Other ranks may be at another step: the state of rank 0 belongs to one step. Ranks that share
/// a replica are at the same step, as each holds a part of it.
void TrainingRun::make_room(Communicator& communicator) {
  if (saved_at_ != progress_.step) {
    save(communicator);
  }
  saver_.wait(communicator);
  if (is_shared()) {
    communicator.barrier("checkpoint"); // All is saved: a rank may leave from here on.
  }
  throw Requeue(fmt::format("stopped by {}: step {} is saved in {}, and --resume continues from it",
                            requeue_signal(), progress_.step, options_.checkpoint_dir));
}

void TrainingRun::save(Communicator& communicator) {
  if (!options_.checkpoint_dir.empty()) {
    if (!device_.is_host()) { // Partial sums of an aborted collective must not be in it.
      device_.stream().record()->wait();
      communicator.check();
    }
    saver_.save(options_.checkpoint_dir, *replica_, progress_, communicator,
                static_cast<std::size_t>(options_.keep));
  }
  saved_at_ = progress_.step;
}

} // namespace trainer
