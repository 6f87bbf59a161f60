// Where a run's state comes from (training_run.h): the seed, weights in a file, a checkpoint, or
// another rank.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trainer/checkpoint/hugging_face.h"
#include "trainer/collectives/agreement.h"
#include "trainer/device/host_view.h"
#include "trainer/device/unlinked_file.h"
#include "trainer/errors.h"
#include "trainer/run/training_run.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/training_step.h"
#include "trainer/text/tokenizer.h"

namespace trainer {
namespace {

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

void TrainingRun::begin(Communicator& communicator, Outputs& outputs, int source, bool is_new) {
  if (!replica_) {
    replica_ = std::make_unique<Replica>(
        fitted(options_.model, data_), options_.optimizer, device_, communicator,
        Sharding{static_cast<int>(settings_.zero_stage), options_.step.buckets}, options_.offload);
  }
  if (replica_->precision != options_.precision) {
    replica_->compute_in(options_.precision);
  }
  saver_->wait_until_copied(); // The last step may have failed before it waited.
  const bool votes = settings_.end != 0 || is_shared();
  replica_->attach(communicator, votes ? std::size_t{k_vote_floats} : 0);
  if (const std::string& folder = options_.checkpoint_dir;
      is_shared() && !folder.empty() && !saver_->meet(folder, communicator)) {
    if (goes_back()) {
      throw_on_all_ranks(communicator,
                         fmt::format("--checkpoint-dir={}: not every rank can write to this "
                                     "folder, and elastic workers at --zero-stage={} continue "
                                     "from it when one is lost; use a shared folder",
                                     folder, settings_.zero_stage));
    }
    outputs.say(fmt::format("--checkpoint-dir={}: not every rank can write to this folder, so rank "
                            "0 saves everything; to save in parts use a shared folder",
                            folder));
  }
  if (goes_back()) { // To what rank 0 finds, as it has the outputs.
    source = 0;
    progress_ = first_progress();
    saved_at_ = -1;
    unlogged_ = {};
    last_line_.reset();
  }
  if ((is_new || goes_back()) && communicator.rank() == source) {
    start_or_resume(outputs, communicator.world_size(), is_new);
  }
  share_state(communicator, source);
}

void TrainingRun::leave() {
  if (goes_back()) {
    saver_.emplace(!options_.offload.is_to_files()); // The one before reads the replica.
    loaded_.reset();
    replica_.reset();
  }
}

/// Loads the newest checkpoint, or weights from a file, or draws them by the seed.
void TrainingRun::start_or_resume(Outputs& outputs, int ranks, bool is_new) {
  const auto say = [&](const std::string& text) { outputs.say(text); };
  const auto newest = checkpoint_to_resume(say, is_new);
  if (newest) {
    resume(*newest, outputs, ranks);
  } else {
    if (!is_new) {
      outputs.resume_after(0);
    }
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
TrainingRun::checkpoint_to_resume(const std::function<void(const std::string&)>& say,
                                  bool is_new) const {
  const std::string& folder = options_.checkpoint_dir;
  if (folder.empty()) {
    return std::nullopt;
  }
  remove_unfinished(folder);
  const auto newest = newest_checkpoint(folder);
  const bool resumes = options_.resume || !is_new; // What it goes back to is its own.
  if (newest && !resumes) {
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
  if (resumes && !whole) {
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
  const bool read_own = is_loaded && saver_->has_met();
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

} // namespace trainer
