// The one step of training, of a rank that holds the whole model, or gathers it unit by unit, and
// takes its own share of a batch.
//
// A step, in step():
//
//   compute      forward and backward, in passes of so many rows that add up; the last backward
//                finishes the gradient arena from its start, and as soon as a bucket is full it is
//                on its way to the other ranks, while backward goes on
//   synchronise  bucket by bucket, wait
//   update       norm, and what follows from it for the step (device/step_state.h); then the
//                parameters are updated
//
// How gradients and parameters go between ranks is an Exchange's: among the ranks (reduced.h), or
// over servers (parameter_server/served.h).
//
// Where the model computes in 16 bits (optim/precision.h), its gradients are rounded to them before
// they are summed, and the loss is scaled (device/loss_scale.h). Where any of them is not finite,
// neither is their norm, by which all skip the update alike.
//
// A rank that is alone on a GPU puts a step there as one graph, from forward to update. The mean
// over ranks costs nothing: the loss is scaled by 1 / global batch before backward, whatever this
// rank's share of it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/monitor/timeline.h"
#include "trainer/nn/outcomes.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/exchange.h"
#include "trainer/strategy/passes.h"

namespace trainer {

struct StepOptions {
  Buckets buckets;
  /// Rows that go forward and backward together; a batch of more is accumulated.
  std::size_t rows_at_once = SIZE_MAX;
  double clip_norm = 0; ///< What the gradients' L2 norm is brought down to; 0: left as it is.
  LossScaleOptions loss_scale = {}; ///< Where the replica computes in 16 bits.

  StepLimits limits(Precision precision) const {
    return {clip_norm, precision != Precision::fp32, loss_scale};
  }
};

/// What elastic ranks, and those that share a replica, sum with the gradients.
enum Vote : std::size_t { k_wants_pause, k_rows, k_vote_floats = 16 };

class MultiWorker {
 public:
  /// Ranks that sum gradients among themselves. `split`, where given, learns what each step took;
  /// `timeline`, likewise, what it was. Both outlive it. A replica with k_vote_floats registered
  /// besides has its ranks vote in each step.
  MultiWorker(Communicator& communicator, Replica& replica, const StepOptions& options,
              BatchSplit* split = nullptr, Timeline* timeline = nullptr);
  /// By another exchange; what this rank and its peers are called is the communicator's.
  MultiWorker(Communicator& communicator, Replica& replica, const StepOptions& options,
              std::unique_ptr<Exchange> exchange, BatchSplit* split = nullptr,
              Timeline* timeline = nullptr);

  /// This rank would have all of them pause after a step.
  void ask_for_pause(bool wants) { wants_pause_ = wants; }
  /// Whether one of them wanted it before the last step: the same on every rank.
  bool pauses() const { return !votes_.empty() && votes_[k_wants_pause] > 0; }

  /// Called on the host's own device in each step, before parameters or moments change.
  void set_before_update(std::function<void()> hook) { before_update_ = std::move(hook); }

  /// One step of training. Gives the score, this rank's own, of those steps since the last call
  /// that the device has told: this one too where it is the host, else those up to two steps ago.
  /// Throws Error where one's loss or gradients are no numbers, naming step, rank and tensor, or
  /// where the elastic ranks' rows are not the global batch's; on the host, before anything is
  /// updated.
  Score step(const Batch& batch);
  /// Waits for what all steps so far have come to: the score that step() has not given yet.
  Score settle();

  /// Of steps that the last one has told of, where they were skipped: why, and what follows. The
  /// same on every rank.
  const std::string& overflow() const { return overflow_; }

  /// Bytes of float32 in each bucket.
  std::vector<std::size_t> bucket_bytes() const;

  /// Whether the last step has changed the ranks' shares of a batch: on every rank alike.
  bool has_new_shares() const { return has_new_shares_; }

  /// Spent getting batches, and in forward and backward, since the start.
  double seconds_input() const { return seconds_input_; }
  double seconds_computing() const { return seconds_computing_; }
  Exchange& exchange() { return *exchange_; }
  const Exchange& exchange() const { return *exchange_; }

 private:
  void compute(const Batch& batch, Seen& seen);
  void look(std::size_t most_under_way);
  void start(std::size_t ready);
  void update();
  void put_update(StepState* told);
  bool is_mixed() const { return replica_.precision != Precision::fp32; }
  /// Parameters are updated once all gradients have come to what they are over the ranks.
  bool updates_last() const {
    return updates_ == Exchange::Updates::together || updates_ == Exchange::Updates::elsewhere;
  }
  void round_gradients(const ArenaRange& range);
  void tell_of_skipped(const StepState& state, double scale_before);
  void check_votes(const Batch& batch) const;
  [[noreturn]] void give_up_on(const char* what, std::int64_t step) const;

  Communicator& communicator_;
  Replica& replica_;
  std::span<float> gradients_;
  StepLimits limits_;
  std::unique_ptr<Exchange> exchange_;
  Exchange::Updates updates_;
  std::size_t steps_ahead_; ///< Outcomes that the device may owe.
  std::size_t started_ = 0; ///< Buckets, in this step.
  Passes passes_;
  Outcomes outcomes_;
  Score told_; ///< What has come of them since the last step().
  std::function<void()> before_update_ = [] {};
  std::span<float> votes_;
  bool wants_pause_ = false;
  std::uint64_t first_overflow_ = UINT64_MAX; ///< In the arena, of this rank's gradients.
  std::string overflow_;
  BatchSplit* split_;
  Timeline* timeline_;
  bool has_new_shares_ = false;
  double seconds_input_ = 0;
  double seconds_computing_ = 0;
};

} // namespace trainer
