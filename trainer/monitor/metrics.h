// What a run reports: scores summed over ranks, and the rates and shares that follow.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/comm/communicator.h"
#include "trainer/device/cpu/kernels.h"

namespace trainer {

/// One line of the log.
struct LogLine {
  std::int64_t step = 0;
  double epoch = 0;              ///< Passed, of all ranks together.
  double loss = 0;               ///< Mean over the samples since the last line.
  double accuracy = 0;           ///< 0 … 1
  double samples_per_second = 0; ///< Of all ranks together.
  double input_bound = 0;        ///< Share of the time spent getting batches, mean over ranks.
  double waiting = 0;            ///< Share spent waiting for other ranks.
};

class Metrics {
 public:
  explicit Metrics(Communicator& communicator);

  void add(const Score& score);

  /// The line since the last one, the same on every rank: a collective. `input_seconds` is the
  /// loader's clock. Throws Error where the loss is no number any more.
  LogLine line(std::int64_t step, double epoch, double input_seconds);

  /// Leaves out the time since the last line (a checkpoint, say).
  void restart(double input_seconds);

 private:
  Communicator& communicator_;
  std::span<float> sums_; ///< Registered.
  Score score_;
  double started_;
  double input_before_ = 0;
  double waiting_before_ = 0;
};

/// The score summed over all ranks: a collective.
Score sum_over_ranks(const Score& score, Communicator& communicator, std::span<float> registered);

} // namespace trainer
