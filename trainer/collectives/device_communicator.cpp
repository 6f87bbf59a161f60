#include "trainer/collectives/device_communicator.h"

#include <thread>

#include <fmt/format.h>

namespace trainer {

DeviceCommunicator::DeviceCommunicator(Communicator& inner, Device& device)
    : ForwardingCommunicator(inner), device_(device), copies_(device.make_stream()) {}

std::string DeviceCommunicator::describe() const {
  return world_size() == 1 ? inner().describe()
                           : fmt::format("{}; copied to and from the device", inner().describe());
}

std::span<float> DeviceCommunicator::allocate_on_device(std::size_t count) {
  const std::size_t staged = world_size() == 1 ? 0 : count;
  const Memory& memory = memory_.emplace_back(
      Memory{device_.allocate(count, DType::f32), device_.allocate_pinned(staged, DType::f32)});
  return memory.device.span();
}

/// Where a range of the device's memory lies on the host; empty for what is the host's.
std::span<float> DeviceCommunicator::staged(std::span<float> on_device) {
  for (const Memory& memory : memory_) {
    const float* first = memory.device.data();
    if (on_device.data() >= first && on_device.data() < first + memory.device.size()) {
      return memory.host.span().subspan(static_cast<std::size_t>(on_device.data() - first),
                                        on_device.size());
    }
  }
  return {};
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
    call.inner = inner().start(call.kind, call.on_host, call.name, call.wire);
    given_.push_back(std::move(call));
    copying_.pop_front();
  }
}

Communicator::Ticket DeviceCommunicator::start(Collective::Kind kind, std::span<float> buffer,
                                               std::string_view name, WireType wire) {
  Call call{next_++, kind, std::string(name), wire, {}, buffer, nullptr};
  if (world_size() > 1) {
    if (const std::span<float> host = staged(buffer); !host.empty()) {
      call.on_device = buffer;
      call.on_host = host;
      copies_->wait(*device_.stream().record());
      copies_->copy(buffer.data(), host.data(), host.size_bytes());
      call.copied = copies_->record();
    }
    const Ticket ticket = call.ticket;
    copying_.push_back(std::move(call));
    give_on(0);
    return ticket;
  }
  return call.ticket;
}

void DeviceCommunicator::wait(Ticket ticket) { wait_in(device_.stream(), ticket); }

void DeviceCommunicator::wait_in(Stream& stream, Ticket ticket) {
  give_on(ticket + 1);
  while (!given_.empty() && given_.front().ticket <= ticket) {
    const Call call = std::move(given_.front());
    given_.pop_front();
    inner().wait(call.inner);
    if (!call.on_device.empty()) {
      copies_->copy(call.on_host.data(), call.on_device.data(), call.on_host.size_bytes());
      stream.wait(*copies_->record());
    }
  }
}

} // namespace trainer
