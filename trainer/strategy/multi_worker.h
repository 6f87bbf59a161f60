// Synchronous data parallelism: every rank holds the whole model, takes its own share of a batch,
// and all apply the same averaged gradient.
//
// A step, in step():
//
//   compute      forward and backward, in passes of so many rows that add up; the last backward
//                finishes the gradient arena from its start, and as soon as a bucket is full its
//                all-reduce starts and runs while backward goes on
//   synchronise  bucket by bucket, wait
//   update       clip, and let the optimizer update the parameters
//
// Where neither a norm nor a whole tensor is needed, each bucket is updated as it comes. Elastic
// ranks wait for all buckets before they update any: whatever fails, each of them holds the whole
// of one step or of the next. The mean over ranks costs nothing: the loss is scaled
// by 1 / global batch before backward, whatever this rank's share of it. With one rank there is one
// bucket and no traffic.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/monitor/timeline.h"
#include "trainer/nn/outcomes.h"
#include "trainer/replica.h"
#include "trainer/strategy/batch_split.h"

namespace trainer {

/// How gradients travel.
struct Buckets {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of bytes says it.
  Buckets(std::size_t bytes_, WireType wire_ = WireType::fp32) : bytes(bytes_), wire(wire_) {}
  /// At least, of float32, in a bucket; 0: as many as the model has use for, see bucket_floats().
  std::size_t bytes;
  WireType wire;
};

/// Gradients in a bucket of a model that has `gradients` of them. By itself a 64th, so that a step
/// of any model is at most 64 all-reduces and the last one, which nothing hides, is short; but 128
/// KiB at least, below which an all-reduce's latency costs more than what it hides.
std::size_t bucket_floats(const Buckets& buckets, std::size_t gradients);

struct StepOptions {
  Buckets buckets;
  /// Rows that go forward and backward together; a batch of more is accumulated.
  std::size_t rows_at_once = SIZE_MAX;
  double clip_norm = 0; ///< What the gradients' L2 norm is brought down to; 0: left as it is.
};

/// What elastic ranks sum with the gradients, in memory right behind them.
enum Ballot : std::size_t { k_wants_pause, k_rows, k_ballot_floats = 16 };

class MultiWorker {
 public:
  /// `split`, where given, learns what each step took; `timeline`, likewise, what it was. Both
  /// outlive it. Elastic ranks have k_ballot_floats behind the replica's gradients.
  MultiWorker(Communicator& communicator, Replica& replica, const StepOptions& options,
              BatchSplit* split = nullptr, Timeline* timeline = nullptr);

  /// This rank would have all of them pause after a step.
  void ask_for_pause(bool wants) { wants_pause_ = wants; }
  /// Whether one of them wanted it before the last step: the same on every rank.
  bool pauses() const { return !ballot_.empty() && ballot_[k_wants_pause] > 0; }

  /// One step of training. Gives the score, this rank's own, of those steps since the last call
  /// that the device has told: this one too where it is the host, else those up to two steps ago.
  /// Throws Error where one's loss or gradients are no numbers, naming step, rank and tensor, or
  /// where the elastic ranks' rows are not the global batch's; on the host, before anything is
  /// updated.
  Score step(const Batch& batch);
  /// Waits for what all steps so far have come to: the score that step() has not given yet.
  Score settle();

  /// Bytes of float32 in each bucket of the last step.
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
  void compute(const Batch& batch);
  void look(std::size_t most_under_way);
  void start(std::size_t ready);
  void synchronise();
  void update();
  void check_ballot(const Batch& batch) const;
  [[noreturn]] void give_up_on(const char* what, std::int64_t step) const;
  void note(Timeline::What what, double begin, double end);

  struct Bucket {
    Communicator::Ticket ticket;
    std::size_t first;
    std::size_t last;
    double started;
  };

  Communicator& communicator_;
  Replica& replica_;
  std::span<float> gradients_;
  WireType wire_;
  std::size_t rows_at_once_;
  float clip_norm_;
  std::size_t bucket_size_;     ///< In floats.
  std::vector<Bucket> buckets_; ///< Under way in this step.
  std::size_t started_ = 0;     ///< Gradients that are in one of them.
  bool updates_at_once_;        ///< Each bucket as it comes; else all, when all have come.
  Outcomes outcomes_;
  Score told_; ///< What has come of them since the last step().
  std::span<float> ballot_;
  bool wants_pause_ = false;
  BatchSplit* split_;
  Timeline* timeline_;
  bool has_new_shares_ = false;
  double seconds_input_ = 0;
  double seconds_computing_ = 0;
  double seconds_under_way_ = 0;
  double seconds_exposed_ = 0;
};

} // namespace trainer
