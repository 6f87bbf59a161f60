// Gradients pushed to parameter servers, which average them over the workers and update what they
// hold; the parameters that follow are pulled.
//
// Where a server is on another host, what backward has finished is on its way in pieces, while it
// goes on. The servers clip no gradients: each worker's factor goes with its push, so that the host
// waits for the device in each step. On a GPU the model computes on copies of the client's arenas.
#pragma once

#include <vector>

#include "trainer/run/replica.h"
#include "trainer/strategy/exchange.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/replicated.h"

namespace trainer {

class Served final : public Exchange {
 public:
  /// `client` has met its servers, and the replica is placed in its arenas; both outlive it.
  /// `needs_norm`: sum_squares() is called in each step.
  Served(ParameterClient& client, Replica& replica, const Buckets& buckets, bool needs_norm);

  Updates updates() const override { return Updates::elsewhere; }
  const std::vector<ArenaRange>& buckets() const override { return buckets_; }
  ParameterOwner& owner() override { return owner_; }

  void begin(const Batch& batch) override { rows_ = batch.rows; }
  void start(std::size_t bucket) override;
  void synchronise() override;
  const double* sum_squares() override;
  void update(const Score& score) override;
  std::int64_t receive() override;

 private:
  ParameterClient& client_;
  Replica& replica_;
  Replicated owner_;
  std::vector<ArenaRange> buckets_;
  Buffer squares_; ///< Sum of squares of the gradients, in float64.
  std::size_t rows_ = 0;
};

} // namespace trainer
