// Gradients pushed to parameter servers, which average them over the workers and update what they
// hold; the parameters that follow are pulled.
//
// Where a server is on another host, what backward has finished is on its way in pieces, while it
// goes on. The servers clip no gradients: each worker's factor goes with its push, so that the host
// waits for the device in each step.
//
// On a GPU the model computes on copies of the client's arenas, which are pinned. Each way has a
// stream of copies: a piece of the gradients goes to the host once backward has made it, and from
// there on to the servers, while the host waits for the rest; the parameters that follow come to
// the GPU from the last piece on, which forward needs first, beside forward:
//
//   device's stream   backward ──┬─ backward ───────┐            ┌─ forward ──┬─
//   out                          └─ to the host ┐   └─ ┐         │            │
//   servers                                     └─ send └─ push ─┐            │
//   in                                                           └─ piece ─ piece
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/run/replica.h"
#include "trainer/strategy/exchange.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/replicated.h"
#include "trainer/strategy/updated_buckets.h"

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
  void advance() override;
  void synchronise() override;
  const SquareSum* sum_squares() override;
  void update(const Score& score) override;
  std::int64_t receive() override;
  void join() override;

 private:
  /// A GPU's copies, each way on a stream of its own.
  struct Copies {
    explicit Copies(Device& device) : out(device.make_stream()), in(device.make_stream()) {}
    std::unique_ptr<Stream> out;
    std::unique_ptr<Stream> in;
    std::deque<std::unique_ptr<Event>> under_way; ///< To the host: of the pieces behind `sent`.
    std::size_t sent = 0;                         ///< Pieces that have come to the host.
  };
  void send_copied();
  void send(std::size_t bucket);

  ParameterClient& client_;
  Replica& replica_;
  std::vector<ArenaRange> buckets_;
  UpdatedBuckets arriving_; ///< Pieces of a GPU's parameters.
  Replicated owner_;
  std::optional<Copies> copies_; ///< None: the arenas are the client's.
  Buffer squares_;               ///< A SquareSum of the gradients.
  std::size_t rows_ = 0;
};

} // namespace trainer
