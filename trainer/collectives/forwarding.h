// A communicator that forwards all calls to another one, for those that change a few.
#pragma once

#include <string>
#include <utility>

#include "trainer/collectives/communicator.h"

namespace trainer {

class ForwardingCommunicator : public Communicator {
 public:
  /// `inner` outlives it.
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  int rank() const noexcept override { return inner_.rank(); }
  int world_size() const noexcept override { return inner_.world_size(); }
  std::string name(int rank) const override { return inner_.name(rank); }
  std::string describe() const override { return inner_.describe(); }
  Route route(std::size_t bytes, WireType wire) const override { return inner_.route(bytes, wire); }
  std::span<float> allocate(std::size_t count) override { return inner_.allocate(count); }
  using Communicator::start;
  Ticket start(Collective collective) override { return inner_.start(std::move(collective)); }
  void wait(Ticket ticket) override { inner_.wait(ticket); }
  void carry_out(Collective collective) override { inner_.carry_out(std::move(collective)); }
  void check() override { inner_.check(); }
  std::uint64_t begin_elsewhere(const Collective& collective) override {
    return inner_.begin_elsewhere(collective);
  }
  void end_elsewhere(std::uint64_t number) override { inner_.end_elsewhere(number); }
  void set_step(std::int64_t step) noexcept override { inner_.set_step(step); }
  void give_up(const std::string& why) noexcept override { inner_.give_up(why); }
  double seconds_waiting() const noexcept override { return inner_.seconds_waiting(); }

 protected:
  Communicator& inner() const { return inner_; }

 private:
  Communicator& inner_;
};

} // namespace trainer
