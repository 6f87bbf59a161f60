// Collectives of a device whose memory is not the host's, carried by a communicator of the host's.
//
// What starts on the device's memory is copied to pinned memory on a stream of its own, once the
// device's stream has made it, and goes to the communicator when it has come; wait_in() brings the
// result back on another, before what backward has still to make, and so backward, both ways'
// copies and the network go on beside each other:
//
//   device's stream   backward ──┬─ backward ──────────────── ▼ update
//   out                          └─ to the host ┐
//   network                                     └─ all_reduce ┐
//   in                                                        └ back
//
// Cost: each value once each way over the bus; of a reduce_scatter only a rank's own chunk comes
// back, of an all_gather only it goes. Broadcasts and barriers take their turn behind what was
// started before them. Of memory that is the host's it is the communicator
// itself.
#pragma once

#include <deque>
#include <list>
#include <memory>

#include "trainer/collectives/forwarding.h"
#include "trainer/device/device.h"

namespace trainer {

class DeviceCommunicator final : public ForwardingCommunicator {
 public:
  /// Both outlive it.
  DeviceCommunicator(Communicator& inner, Device& device);

  std::string describe() const override;
  std::span<float> allocate_on_device(std::size_t count) override;
  void use_on_device(std::span<float> memory) override;
  using Communicator::start;
  Ticket start(Collective collective) override;
  void carry_out(Collective collective) override { wait(start(std::move(collective))); }
  void wait(Ticket ticket) override;
  void wait_in(Stream& stream, Ticket ticket) override;

 private:
  struct Memory {
    Buffer device; ///< allocate_on_device()'s.
    std::span<float> span;
    Buffer host;
  };
  struct Call {
    Ticket ticket;
    Collective collective;         ///< Of the host's memory.
    std::byte* on_device;          ///< Where it came from; null: it is the host's own.
    std::unique_ptr<Event> copied; ///< To the host; null: it is there.
    Ticket inner = 0;              ///< Once it has been given on.
  };
  void add(Buffer device, std::span<float> span);
  std::byte* staged(const Range& on_device);
  Range brought(const Collective& collective) const;
  Range got(const Collective& collective) const;
  Range own_chunk(const Collective& collective) const;
  void give_on(Ticket end);

  Device& device_;
  std::unique_ptr<Stream> out_; ///< Of copies to the host,
  std::unique_ptr<Stream> in_;  ///< and back.
  std::list<Memory> memory_;
  std::deque<Call> copying_; ///< In order: not given on yet,
  std::deque<Call> given_;   ///< given on, not waited for yet.
  Ticket next_ = 0;
};

} // namespace trainer
