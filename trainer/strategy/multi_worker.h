// Synchronous data parallelism: every rank holds the whole model, takes its own share of a batch,
// and all apply the same averaged gradient.
//
// A step, in step():
//
//   compute      forward and backward, in passes of so many rows that add up; the last backward
//                finishes the gradient arena from its start, and as soon as a bucket is full its
//                all-reduce starts and runs while backward goes on
//   synchronise  bucket by bucket, wait
//   update       norm, and what follows from it for the step (device/step_state.h); then the
//                optimizer updates the parameters
//
// Where the model computes in 16 bits (optim/precision.h), its gradients are rounded to them before
// they are summed, and the loss is scaled (device/loss_scale.h). Where any of them is not finite,
// neither is their norm, by which all skip the update alike.
//
// Where neither a norm nor a whole tensor is needed, each bucket is updated as it comes. Elastic
// ranks wait for all buckets before they update any: whatever fails, each of them holds the whole
// of one step or of the next. A rank that is alone on a GPU puts a step there as one graph, from
// forward to update. The mean over ranks costs nothing: the loss is scaled
// by 1 / global batch before backward, whatever this rank's share of it. With one rank there is one
// bucket and no traffic. Ranks that share the replica (strategy/shards.h) reduce-scatter buckets,
// update each its own chunks, and gather what the others have updated.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/monitor/timeline.h"
#include "trainer/nn/outcomes.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/gathered.h"
#include "trainer/strategy/passes.h"

namespace trainer {

struct StepOptions {
  Buckets buckets;
  /// Rows that go forward and backward together; a batch of more is accumulated.
  std::size_t rows_at_once = SIZE_MAX;
  double clip_norm = 0; ///< What the gradients' L2 norm is brought down to; 0: left as it is.
  LossScaleOptions loss_scale = {}; ///< Where the replica computes in 16 bits.
};

/// Buckets whose sums are under way at a time while backward goes on, from stage 2 on; of those
/// before, what is the others' has gone.
inline constexpr std::size_t k_sums_under_way = 2;

/// What elastic ranks, and those that share a replica, sum with the gradients.
enum Vote : std::size_t { k_wants_pause, k_rows, k_vote_floats = 16 };

class MultiWorker {
 public:
  /// `split`, where given, learns what each step took; `timeline`, likewise, what it was. Both
  /// outlive it. A replica with k_vote_floats registered besides has its ranks vote in each step.
  MultiWorker(Communicator& communicator, Replica& replica, const StepOptions& options,
              BatchSplit* split = nullptr, Timeline* timeline = nullptr);

  /// This rank would have all of them pause after a step.
  void ask_for_pause(bool wants) { wants_pause_ = wants; }
  /// Whether one of them wanted it before the last step: the same on every rank.
  bool pauses() const { return !votes_.empty() && votes_[k_wants_pause] > 0; }

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
  /// For which gradients were under way, from the first bucket's start to the last one's end, and
  /// the part of it that the rank stood waiting: what computing did not hide.
  double seconds_under_way() const { return seconds_under_way_; }
  double seconds_exposed() const { return seconds_exposed_; }

 private:
  void compute(const Batch& batch, Seen& seen);
  void look(std::size_t most_under_way);
  void start(std::size_t ready);
  void give_back(std::size_t buckets);
  void synchronise();
  void update();
  void update(std::size_t bucket);
  void put_update(StepState* told);
  void wait_for_parameters();
  const double* sum_squares();
  bool is_mixed() const { return replica_.precision != Precision::fp32; }
  void round_gradients(const ArenaRange& range);
  void tell_of_skipped(const StepState& state, double scale_before);
  bool is_own_chunks_only() const { return replica_.sharding.stage > 0; }
  void check_votes(const Batch& batch) const;
  [[noreturn]] void give_up_on(const char* what, std::int64_t step) const;
  void note(Timeline::What what, double begin, double end);

  /// A bucket's gradients, or what the ranks vote.
  struct UnderWay {
    Communicator::Ticket ticket;
    std::size_t bucket; ///< k_no_bucket: the votes alone.
    double started;
  };
  static constexpr std::size_t k_no_bucket = SIZE_MAX;

  Communicator& communicator_;
  Replica& replica_;
  std::span<float> gradients_;
  WireType wire_;
  StepLimits limits_;
  Shards shards_;
  std::unique_ptr<Replicated> owner_;         ///< The replica's.
  Gathered* gathered_;                        ///< The same, at stage 3; else null.
  std::vector<UnderWay> under_way_;           ///< In this step.
  std::size_t started_ = 0;                   ///< Buckets,
  std::size_t given_back_ = 0;                ///< and those of which the others' part is gone.
  std::vector<Communicator::Ticket> gathers_; ///< Of what has been updated.
  Buffer squares_memory_;                     ///< Of the device,
  double* squares_ = nullptr;                 ///< or of the communicator there: see sum_squares().
  /// All behind the last pass and as part of it: of a rank that is alone on a GPU. Else each bucket
  /// as it comes, or all when all have come.
  enum class Updates : std::uint8_t { with_pass, at_once, together } updates_;
  Passes passes_;
  Outcomes outcomes_;
  Score told_; ///< What has come of them since the last step().
  std::span<float> votes_;
  bool wants_pause_ = false;
  std::uint64_t first_overflow_ = UINT64_MAX; ///< In the arena, of this rank's gradients.
  std::string overflow_;
  BatchSplit* split_;
  Timeline* timeline_;
  bool has_new_shares_ = false;
  double seconds_input_ = 0;
  double seconds_computing_ = 0;
  double seconds_under_way_ = 0;
  double seconds_exposed_ = 0;
};

} // namespace trainer
