// Which batch of a run each worker is to train on: what a coordinator hands out.
//
// Batch: number k takes samples [k·B, (k+1)·B) of the stream that data/loader.h describes, B the
// batch size of a worker. Batches are given out in order, each to one worker, whoever asks next, so
// fast workers take more of them. What a lost worker had goes to the next one that asks, as
// TensorFlow's ClusterCoordinator schedules a lost worker's function again.
//
// When the servers of a synchronous job restart from a snapshot, in another generation
// (protocol.h), the batches given out for its version and later ones have been undone: they are
// given out again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

namespace trainer {

class WorkLedger {
 public:
  /// `batches`: of the whole run.
  WorkLedger(std::int64_t batches, int workers, bool sync)
      : batches_(batches), workers_(workers), sync_(sync) {}

  /// The batch for a worker that has these values, asked before anything is pushed in a generation.
  /// `is_done`: with the one it had, in this generation. None: all are given out.
  std::optional<std::int64_t> next(int worker, std::int64_t version, std::int64_t generation,
                                   bool is_done = true);

  /// A worker is lost: its batch goes to another.
  void lose(int worker);

  std::int64_t batches() const { return batches_; }
  std::int64_t done() const {
    return next_ - static_cast<std::int64_t>(returned_.size() + under_way_.size());
  }
  bool is_finished() const { return done() == batches_; }

 private:
  void restart(std::int64_t version);

  struct Given {
    std::int64_t version; ///< Version of the values for which it was given out.
    std::int64_t batch;
  };

  std::int64_t batches_;
  int workers_;
  bool sync_;
  std::int64_t generation_ = 0;
  std::int64_t next_ = 0;
  std::set<std::int64_t> returned_;       ///< Batches to give out again, below next_.
  std::map<int, std::int64_t> under_way_; ///< Worker -> batch.
  std::deque<Given> given_;               ///< The newest batches of a synchronous job.
};

} // namespace trainer
