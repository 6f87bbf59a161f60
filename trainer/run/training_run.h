// One rank's part of a training run: settings, replica and progress, which outlive the communicator
// that they are trained with.
//
//   agree()   on the settings
//   begin()   all take the state of the rank that has the newest
//   train()   the loop, to the end or to where elastic ranks agree to pause
//   finish()  the last checkpoint, the score on held-out samples, the timeline
//
// All are collective, and throw PeerError where a peer fails. Progress and replica are then
// those of one whole step, and begin() with another communicator goes on from them. Elastic ranks
// that share a replica have lost a part of it with a peer: they leave() it, and begin() goes on
// from the last checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/collectives/communicator.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/device/device.h"
#include "trainer/monitor/outputs.h"
#include "trainer/monitor/timeline.h"
#include "trainer/run/run_options.h"
#include "trainer/run/run_settings.h"

namespace trainer {

class TrainingRun {
 public:
  /// `samples`: of an epoch, as all_samples() says; `ranks`: as many as the run is planned for.
  /// What it is given outlives it.
  TrainingRun(const RunOptions& options, Device& device, const Dataset& data,
              const AllSamples& samples, int ranks, bool is_elastic);

  /// `source`: the rank whose settings they are; `is_new`: no rank has begun yet.
  void agree(Communicator& communicator, int source, bool is_new);

  /// `source`: the rank whose state all take; `is_new`: it has none yet, and starts or resumes.
  /// Throws UsageError where the ranks go back to checkpoints that not all of them can write.
  void begin(Communicator& communicator, Outputs& outputs, int source, bool is_new);

  /// False where the ranks pause. `wants_pause` is asked before each step.
  bool train(Communicator& communicator, Outputs& outputs,
             const std::function<bool()>& wants_pause);
  void finish(Communicator& communicator, Outputs& outputs);
  /// Before the communicator of elastic ranks goes, in whose memory a shared replica may lie.
  void leave();

  const RunSettings& settings() const { return settings_; }
  const Offload& offload() const { return options_.offload; }
  const Progress& progress() const { return progress_; }
  bool has_state() const { return has_state_; }
  /// Of elastic ranks: all samples are behind, and no rank is needed any more.
  bool is_complete() const;

 private:
  Progress first_progress() const;
  void start_or_resume(Outputs& outputs, int ranks, bool is_new);
  std::optional<std::string>
  checkpoint_to_resume(const std::function<void(const std::string&)>& say, bool is_new) const;
  void draw(const std::function<void(const std::string&)>& say);
  void resume(const std::string& path, Outputs& outputs, int ranks);
  void describe_model(const std::string& folder) const;
  void share_state(Communicator& communicator, int source);
  void broadcast_arenas(Communicator& communicator, int source);
  void scatter_arenas(Communicator& communicator, int source);
  /// Each rank has a part of it alone.
  bool is_shared() const { return replica_->sharding.stage > 0; }
  /// Elastic ranks that share a replica, or would if they were several: see leave().
  bool goes_back() const { return settings_.end != 0 && settings_.zero_stage > 0; }
  bool is_logged_step(std::int64_t steps) const;
  void make_up_for_line(Metrics& metrics, double epoch, Outputs& outputs);
  void note_state();
  void save_and_wait(Communicator& communicator);
  [[noreturn]] void make_room() const;
  void save(Communicator& communicator);
  void export_weights(Communicator& communicator);
  Score score_held_out(Communicator& communicator);
  std::int64_t last_step(int ranks) const;

  const RunOptions& options_;
  Device& device_;
  const Dataset& data_;
  RunSettings settings_;
  std::unique_ptr<Replica> replica_;         ///< From the first begin() on; not once left.
  std::optional<CheckpointSaver> saver_;     ///< What it saves is the replica's.
  std::unique_ptr<CheckpointReader> loaded_; ///< Until ranks that share a replica have its state,
  Buffer drawn_{0};                          ///< and first weights, likewise: see draw().
  Progress progress_;
  bool has_state_ = false;
  std::int64_t saved_at_ = -1;
  Unlogged unlogged_;
  std::optional<LogLine> last_line_;
  Timeline timeline_;
};

} // namespace trainer
