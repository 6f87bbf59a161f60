// How the gradients of a step become the parameters of the next one, between the ranks of a job.
// strategy/training_step.h takes the step; strategy/reduced.h sums gradients among the ranks, which
// update what they own; parameter_server/served.h has parameter servers do both.
//
// In a step, in this order, each of them putting its work on the device's stream or waiting for it:
//
//   begin        a batch begins
//   start        the gradients of a bucket are final: called once per bucket, in the arena's order,
//                while backward goes on
//   advance      what a GPU has done so far can go on: called while the host waits for it
//   release      the model has read parameters of this batch for the last time
//   synchronise  every bucket holds the gradients of all ranks
//   sum_squares  the sum of their squares, if a step needs the norm
//   update       this rank updates its parameters
//   receive      the parameters that other ranks or servers have updated arrive
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/nn/batch.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/strategy/step_clock.h"

namespace trainer {

class Exchange {
 public:
  /// When parameters are updated.
  enum class Updates : std::uint8_t {
    with_pass, ///< With the last pass, as one CUDA graph: a single rank on a GPU.
    at_once,   ///< Each bucket as it arrives, put on a stream in synchronise().
    together,  ///< All buckets in update().
    elsewhere, ///< By servers; the host sends them the step's score in update().
  };

  /// `timeline`, if given, records what the rank does. Both outlive the Exchange.
  explicit Exchange(Device& device, Timeline* timeline = nullptr) : clock_(device, timeline) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual Updates updates() const = 0;
  /// The parts of the gradient arena, in its order; together they cover it.
  virtual const std::vector<ArenaRange>& buckets() const = 0;
  /// The owner of the parameters that the model computes with.
  virtual ParameterOwner& owner() = 0;

  virtual void begin(const Batch& batch) = 0;
  virtual void start(std::size_t bucket) = 0;
  virtual void advance() {}
  /// Of the first `count` parameters of the arena.
  virtual void release(std::size_t /*count*/) {}
  virtual void synchronise() = 0;
  /// Over all ranks, in the device's memory; only if the exchange was constructed for it.
  virtual const SquareSum* sum_squares() = 0;
  /// `score`: of the batch; read only if updates() is elsewhere.
  virtual void update(const Score& score) = 0;
  /// Returns the step that the parameters are at. It differs from this rank's own count after the
  /// other ranks went back to a checkpoint, or went on without this rank.
  virtual std::int64_t receive() = 0;
  /// What is put on the device's stream from now on comes after all updates, of which some may be
  /// beside the next step.
  virtual void join() {}

  /// Where the time of its steps goes.
  StepClock& clock() { return clock_; }
  const StepClock& clock() const { return clock_; }

 private:
  StepClock clock_;
};

} // namespace trainer
