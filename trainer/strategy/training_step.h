// A training step of a rank that takes its share of each batch, and holds the whole model or
// gathers it unit by unit.
//
// A step, in run():
//
//   compute      forward and backward, in passes of so many rows whose gradients add up; the last
//                backward fills the gradient arena from its start, and each bucket is sent to the
//                other ranks as soon as it is full, while backward goes on
//   synchronise  waits for each bucket
//   update       computes the norm, and from it the step's factor (device/step_state.h); then
//                updates the parameters
//
// An Exchange moves gradients and parameters between ranks: directly (reduced.h), or through
// servers (parameter_server/served.h).
//
// If the model computes in 16 bits (optim/precision.h), its gradients are rounded to 16 bits before
// they are summed, and the loss is scaled (device/loss_scale.h). If any gradient is not finite,
// neither is the norm, so that all ranks skip the same update.
//
// A single rank on a GPU runs a step as one CUDA graph, from forward to update. The mean over ranks
// costs nothing: the loss is scaled by 1 / global batch before backward, whatever this rank's share
// of it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/nn/outcomes.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/exchange.h"
#include "trainer/strategy/passes.h"

namespace trainer {

struct StepOptions {
  Buckets buckets;
  /// Rows per pass; gradients of a larger batch are accumulated.
  std::size_t rows_at_once = SIZE_MAX;
  double clip_norm = 0;             ///< Largest L2 norm of the gradients; 0: no clipping.
  LossScaleOptions loss_scale = {}; ///< Used if the replica computes in 16 bits.
  /// In bf16: whether steps are skipped whose gradients are not finite; in fp16 they are.
  bool checks_overflow = true;

  StepLimits limits(Precision precision) const {
    return {clip_norm,
            precision == Precision::fp16 || (precision == Precision::bf16 && checks_overflow),
            loss_scale};
  }
};

/// Floats that elastic ranks, and ranks that share a replica, sum with the gradients.
enum Vote : std::size_t { k_wants_pause, k_rows, k_vote_floats = 16 };

class TrainingStep {
 public:
  /// The ranks sum gradients directly. `split`, if given, gets the durations of steps, and
  /// `timeline`, if given, records their parts. Both outlive the TrainingStep. The ranks vote in
  /// each step if the replica has k_vote_floats extra floats.
  TrainingStep(Communicator& communicator, Replica& replica, const StepOptions& options,
               BatchSplit* split = nullptr, Timeline* timeline = nullptr);
  /// With another exchange; the communicator names this rank and its peers in messages.
  TrainingStep(Communicator& communicator, Replica& replica, const StepOptions& options,
               std::unique_ptr<Exchange> exchange, BatchSplit* split = nullptr);

  /// Votes for (or no longer for) a pause of all ranks after a step.
  void ask_for_pause(bool wants) { wants_pause_ = wants; }
  /// Whether any rank had voted for it before the last step: the same on every rank.
  bool pauses() const { return !votes_.empty() && votes_[k_wants_pause] > 0; }

  /// On the CPU called in each step before parameters or moments change.
  void set_before_update(std::function<void()> hook) { before_update_ = std::move(hook); }

  /// One training step. Returns this rank's score of the steps that have finished since the last
  /// call: on the CPU, and of elastic ranks, this step's; else a GPU lags behind by up to two
  /// steps. Throws Error naming step, rank and tensor if a loss or gradient is not finite, and if
  /// the elastic ranks' rows do not add up to the global batch. On the CPU it throws before
  /// anything is updated.
  Score run(const Batch& batch);
  /// Waits until all steps have finished, and returns the score that run() has not returned.
  Score settle();

  /// Why steps of those that the last call reported were skipped, and the new loss scale; empty if
  /// none was. The same on every rank.
  const std::string& overflow() const { return overflow_; }

  /// Size of each bucket in bytes of float32.
  std::vector<std::size_t> bucket_bytes() const;

  /// Whether the last step has changed the ranks' shares of a batch; the same on every rank.
  bool has_new_shares() const { return has_new_shares_; }

  /// Where the time of its steps goes; on a GPU, of those that run() or settle() has reported.
  const StepClock& clock() const { return exchange_->clock(); }
  Exchange& exchange() { return *exchange_; }

 private:
  void compute(const Batch& batch, Seen& seen);
  void send_outcome(std::int64_t step, std::shared_ptr<const Event> came, bool has_state,
                    bool counts = true);
  void collect(std::size_t most_under_way);
  void start(std::size_t ready);
  void update();
  void put_update(StepState* copy);
  bool is_mixed() const { return replica_.precision != Precision::fp32; }
  /// Ranks that go on from the last whole step once another is lost.
  bool is_elastic() const { return !votes_.empty() && replica_.sharding.stage == 0; }
  /// Parameters are updated once all gradients have come to what they are over the ranks.
  bool updates_last() const {
    return updates_ == Exchange::Updates::together || updates_ == Exchange::Updates::elsewhere;
  }
  void round_gradients(const ArenaRange& range);
  void report_skipped(const StepState& state, double scale_before);
  void check_votes(const Batch& batch) const;
  [[noreturn]] void throw_not_finite(const std::string& what, std::int64_t step) const;

  Communicator& communicator_;
  Replica& replica_;
  std::span<float> gradients_;
  StepLimits limits_;
  std::unique_ptr<Exchange> exchange_;
  Exchange::Updates updates_;
  std::size_t steps_ahead_; ///< Most steps that the device may lag behind.
  std::size_t started_ = 0; ///< Buckets started in this step.
  Passes passes_;
  Outcomes outcomes_;
  std::deque<std::uint64_t> marked_; ///< Points of the clock that each outcome under way is behind.
  Score finished_score_;             ///< Of the steps that have finished since the last run().
  std::function<void()> before_update_ = [] {};
  std::span<float> votes_;
  bool wants_pause_ = false;
  std::uint64_t first_overflow_ = UINT64_MAX; ///< Place in the arena of this rank's first one.
  std::string overflow_;
  BatchSplit* split_;
  bool has_new_shares_ = false;
};

} // namespace trainer
