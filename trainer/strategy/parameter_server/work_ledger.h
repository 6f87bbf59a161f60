// Which batch of a run each worker is to train on: what a coordinator hands out.
//
// Batch: number k takes samples [k·B, (k+1)·B) of the stream that data/loader.h describes, B the
// batch size of a worker. Batches are given out in order, each to one worker, whoever asks next, so
// fast workers take more of them. What a lost worker had goes to the next one that asks, as
// TensorFlow's ClusterCoordinator schedules a lost worker's function again.
//
// In a synchronous job servers may go back to an older version. The batches given out since then
// have been undone with it: they are given out again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace trainer {

class WorkLedger {
 public:
  /// `batches`: of the whole run.
  WorkLedger(std::int64_t batches, int workers, bool sync)
      : batches_(batches), workers_(workers), sync_(sync) {}

  /// The batch for a worker that has the values of `version`, and is done with the one it had.
  /// `went_back`: the servers did, to that version. None: all are given out.
  std::optional<std::int64_t> next(int worker, std::int64_t version, bool went_back);

  /// A worker is gone: what it had is to be done by another.
  void lose(int worker);

  std::int64_t batches() const { return batches_; }
  std::int64_t done() const {
    return next_ - static_cast<std::int64_t>(returned_.size() + under_way_.size());
  }
  bool is_finished() const { return done() == batches_; }

 private:
  void begin_version(std::int64_t version, bool went_back);

  std::int64_t batches_;
  int workers_;
  bool sync_;
  std::int64_t next_ = 0;
  std::deque<std::int64_t> returned_;             ///< By lost workers; below next_.
  std::map<int, std::int64_t> under_way_;         ///< Worker -> batch.
  std::map<std::int64_t, std::int64_t> first_of_; ///< Version -> its first batch; the newest ones.
};

} // namespace trainer
