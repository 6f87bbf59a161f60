#include "trainer/collectives/device_communicator.h"

#include <thread>
#include <utility>

#include <fmt/format.h>

namespace trainer {

DeviceCommunicator::DeviceCommunicator(Communicator& inner, Device& device)
    : ForwardingCommunicator(inner), device_(device), out_(device.make_stream()),
      in_(device.make_stream()) {}

std::string DeviceCommunicator::describe() const {
  return world_size() == 1 ? inner().describe()
                           : fmt::format("{}; copied to and from the device", inner().describe());
}

std::span<float> DeviceCommunicator::allocate_on_device(std::size_t count) {
  Buffer device = device_.allocate(count, DType::f32);
  const std::span<float> span = device.span();
  add(std::move(device), span);
  return span;
}

void DeviceCommunicator::use_on_device(std::span<float> memory) { add(Buffer(0), memory); }

void DeviceCommunicator::add(Buffer device, std::span<float> span) {
  const std::size_t staged = world_size() == 1 ? 0 : span.size();
  memory_.push_back({std::move(device), span, device_.allocate_pinned(staged, DType::f32)});
}

/// Where a range of the device's memory lies on the host; null for what is the host's.
std::byte* DeviceCommunicator::staged(const Range& on_device) {
  for (const Memory& memory : memory_) {
    if (on_device.begins_in(memory.span)) {
      return static_cast<std::byte*>(memory.host.memory()) +
             (on_device.data() - std::as_bytes(memory.span).data());
    }
  }
  return nullptr;
}

/// What this rank brings to it, and what it gets.
Range DeviceCommunicator::brought(const Collective& collective) const {
  switch (collective.kind) {
  case Collective::Kind::all_gather:
    return own_chunk(collective);
  case Collective::Kind::broadcast:
    return collective.root == rank() ? collective.range : collective.range.part(0, 0);
  default:
    return collective.range;
  }
}
Range DeviceCommunicator::got(const Collective& collective) const {
  return collective.kind == Collective::Kind::reduce_scatter ? own_chunk(collective)
                                                             : collective.range;
}
Range DeviceCommunicator::own_chunk(const Collective& collective) const {
  return Chunks(collective, world_size()).of(collective.range, rank());
}

/// Those before `end` go to the communicator, when they have come to the host, and all others that
/// have come.
void DeviceCommunicator::give_on(Ticket end) {
  while (!copying_.empty()) {
    Call& call = copying_.front();
    while (call.copied && !call.copied->has_passed()) {
      if (call.ticket >= end) {
        return;
      }
      inner().check();
      std::this_thread::yield();
    }
    call.inner = inner().start(call.collective);
    given_.push_back(std::move(call));
    copying_.pop_front();
  }
}

Communicator::Ticket DeviceCommunicator::start(Collective collective) {
  Call call{next_++, std::move(collective), nullptr, nullptr};
  const Ticket ticket = call.ticket;
  if (world_size() == 1) {
    return ticket;
  }
  if (std::byte* const host = staged(call.collective.range); host != nullptr) {
    const Range on_device = call.collective.range;
    call.on_device = on_device.data();
    const Range mine = brought(call.collective);
    out_->wait(*device_.stream().record());
    if (call.collective.after != nullptr) {
      out_->wait(*std::exchange(call.collective.after, nullptr));
    }
    if (mine.count() > 0) {
      out_->copy(mine.data(), host + (mine.data() - on_device.data()), mine.size_bytes());
    }
    call.copied = out_->record();
    call.collective.range = on_device.at(host);
  }
  copying_.push_back(std::move(call));
  give_on(0);
  return ticket;
}

void DeviceCommunicator::wait(Ticket ticket) { wait_in(device_.stream(), ticket); }

void DeviceCommunicator::wait_in(Stream& stream, Ticket ticket) {
  give_on(ticket + 1);
  while (!given_.empty() && given_.front().ticket <= ticket) {
    const Call call = std::move(given_.front());
    given_.pop_front();
    inner().wait(call.inner);
    if (call.on_device != nullptr) {
      const Range result = got(call.collective); // On the host.
      if (result.count() > 0) {
        in_->copy(result.data(), call.on_device + (result.data() - call.collective.range.data()),
                  result.size_bytes());
      }
      stream.wait(*in_->record());
    }
  }
}

} // namespace trainer
