// How the gradients of a step become the parameters of the next one, between the ranks of a job.
// strategy/multi_worker.h takes the step; strategy/reduced.h sums gradients among the ranks, which
// update what they own; parameter_server/served.h has parameter servers do both.
//
// In a step, in this order, each of them putting its work on the device's stream or waiting for it:
//
//   begin        of this batch
//   start        a bucket's gradients are final: once each, in the arena's order, as backward ends
//                them
//   synchronise  all of them have come to what they are over all ranks
//   sum_squares  of them, where steps need their norm
//   update       of the parameters
//   receive      those that others have updated
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/nn/batch.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class Exchange {
 public:
  /// When parameters are updated.
  enum class Updates : std::uint8_t {
    with_pass, ///< update() is part of the last pass, as one graph: of a rank alone on a GPU.
    at_once,   ///< Each bucket as it comes, in synchronise().
    together,  ///< By update(), when all buckets have come.
    elsewhere, ///< Likewise, by others, who are told by the host what the step has come to.
  };

  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual Updates updates() const = 0;
  /// What gradients are cut into, in the arena's order, which they fill.
  virtual const std::vector<ArenaRange>& buckets() const = 0;
  /// Of the parameters that the model computes with.
  virtual ParameterOwner& owner() = 0;

  virtual void begin(const Batch& batch) = 0;
  virtual void start(std::size_t bucket) = 0;
  virtual void synchronise() = 0;
  /// Over all ranks, where the exchange was made for it: in the device's memory.
  virtual const double* sum_squares() = 0;
  /// `score`: what the batch has come to, where the updates are elsewhere.
  virtual void update(const Score& score) = 0;
  /// Gives how many steps the parameters have behind them: others than this rank's where the other
  /// ranks have gone back, or on without it.
  virtual std::int64_t receive() = 0;

  /// For which gradients were under way, from the first bucket's start to the last one's end, and
  /// the part of it that the rank stood waiting: what computing did not hide. Since the start.
  double seconds_under_way() const { return seconds_under_way_; }
  double seconds_exposed() const { return seconds_exposed_; }

 protected:
  double seconds_under_way_ = 0;
  double seconds_exposed_ = 0;
};

} // namespace trainer
