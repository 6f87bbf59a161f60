// What a run reports: scores summed over ranks, and the rates and shares that follow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
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
  /// Share of the time that gradients are under way, behind which ranks computed; none where
  /// nothing travels while a rank computes.
  std::optional<double> overlap = std::nullopt;
  /// How long ranks take over their part of a step, up to the all-reduce.
  int slowest = 0; ///< The rank.
  double slowest_seconds = 0;
  double median_seconds = 0;
  double fastest_seconds = 0;
  std::optional<double> learning_rate = std::nullopt; ///< Of the step; none where servers update.
  std::optional<double> loss_scale = std::nullopt;    ///< Likewise, in 16 bits.
};

/// A rank's clocks: seconds since the start.
struct RankSeconds {
  double input = 0;     ///< Getting batches.
  double computing = 0; ///< Forward and backward.
  double under_way = 0; ///< With gradients under way.
  double exposed = 0;   ///< Of those, waiting.
  double waiting = 0;   ///< Waiting for other ranks, in all.
};

/// Tells which rank holds the others back: the one that took half as long again as the median, two
/// lines running. Names each rank once.
class StragglerWatch {
 public:
  std::optional<int> look(const LogLine& line);

 private:
  int suspect_ = -1;
  std::vector<int> named_;
};

/// What a rank has to report since the last line. It outlives a communicator, so a line that failed
/// with one is not lost.
struct Unlogged {
  Unlogged();
  Score score;
  std::size_t samples = 0;
  double started; ///< now() at the last line.
};

class Metrics {
 public:
  Metrics(Communicator& communicator, Unlogged& unlogged);

  /// What this rank's `samples` have scored: of text, each masked token counts.
  void add(const Score& score, std::size_t samples);

  /// The line since the last one, the same on every rank: a collective. None where no rank has
  /// trained since. Throws Error where the loss became NaN or infinite.
  std::optional<LogLine> line(std::int64_t step, double epoch, const RankSeconds& seconds);

 private:
  Communicator& communicator_;
  Unlogged& unlogged_;
  std::vector<double> sums_;
  RankSeconds before_;
  std::int64_t steps_ = 0;
};

/// The score summed over all ranks: a collective.
Score sum_over_ranks(const Score& score, Communicator& communicator);

} // namespace trainer
