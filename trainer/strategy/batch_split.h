// Who takes how many samples of the global batch, where ranks are of unlike speed.
//
// Share: the rows of a global batch that one rank takes; the shares lie side by side, in rank
// order. Equal ones to begin with. By speed: every so many steps each rank's speed since the last
// time (rows a second of input and arithmetic, waiting left out) goes around, and shares become
// proportional to it, so that all ranks reach the all-reduce together. Every rank weighs its
// gradient by 1 / global batch, so the sum is the mean over the same samples whatever the shares.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"

namespace trainer {

/// Whole rows in proportion to `speeds` (any unit, greater than 0), at least one each, that add up
/// to `global_batch`, which is at least as many as there are speeds.
std::vector<std::size_t> rows_by_speed(std::size_t global_batch, std::span<const double> speeds);

class BatchSplit {
 public:
  /// `batch_size`: of an equal share. Collective.
  BatchSplit(bool by_speed, std::size_t batch_size, Communicator& communicator);

  /// Where this rank's share begins in the global batch, and how long it is.
  std::size_t first() const;
  std::size_t rows() const { return rows_[rank_]; }
  const std::vector<std::size_t>& all_rows() const { return rows_; }

  /// After each step: what this rank has computed for since the start. Collective now and then;
  /// true, on every rank, where the shares have changed.
  bool after_step(double seconds_computing);

 private:
  bool by_speed_;
  std::size_t rank_;
  Communicator& communicator_;
  std::vector<std::size_t> rows_; ///< A rank.
  std::span<float> speeds_;       ///< Registered; a rank.
  std::int64_t steps_ = 0;        ///< Since the shares were looked at.
  std::int64_t period_;
  double seconds_before_ = 0;
};

} // namespace trainer
