// How many samples of the global batch each rank takes, when ranks differ in speed.
//
// Share: the rows of a global batch that one rank takes; the shares follow each other in rank order
// and are equal at first. By speed: every so many steps the ranks exchange their speed since the
// last time (rows per second of input and arithmetic, without waiting), and shares become
// proportional to it, so that all ranks reach the all-reduce together. Every rank weighs its
// gradient by 1 / global batch, so the sum is the mean over the same samples whatever the shares.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/strategy/step_clock.h"

namespace trainer {

/// Rows per rank in proportion to `speeds` (any unit, greater than 0), at least one each, which add
/// up to `global_batch`. There are at least as many rows as speeds.
std::vector<std::size_t> rows_by_speed(std::size_t global_batch, std::span<const double> speeds);

class BatchSplit {
 public:
  /// Collective. `batch_size`: rows of an equal share.
  BatchSplit(bool by_speed, std::size_t batch_size, Communicator& communicator);

  /// The first row of this rank's share in the global batch, and its length.
  std::size_t first() const;
  std::size_t rows() const { return rows_[rank_]; }
  const std::vector<std::size_t>& all_rows() const { return rows_; }

  /// Call after each step, with all that this rank has done. Collective every so many steps;
  /// returns true, on every rank, if the shares have changed.
  bool after_step(const WorkDone& done);

 private:
  bool by_speed_;
  std::size_t rank_;
  Communicator& communicator_;
  std::vector<std::size_t> rows_; ///< Per rank.
  std::span<float> speeds_;       ///< Per rank; registered with the communicator.
  std::int64_t steps_ = 0;        ///< Since the ranks last exchanged speeds.
  std::int64_t period_;
  WorkDone before_; ///< Done by then.
};

} // namespace trainer
