#include "trainer/strategy/parameter_server/session.h"

#include <algorithm>

#include <fmt/format.h>

namespace trainer {
std::string Session::name() const {
  return is_accepted_ ? fmt::format("worker {} ({}, pid {})", hello_.worker, who_.host, who_.pid)
                      : fmt::format("a worker of {} (pid {})", who_.host, who_.pid);
}

void Session::accept(const WorkerHello& hello) {
  hello_ = hello;
  is_accepted_ = true;
  ranges_ = hello.ranges();
  held_ = floats_in(ranges_);
  if (const SharedFile file = SharedFile::open(hello_.memory)) {
    try {
      arenas_ = SharedArenas(file, hello_.arena);
    } catch (const Error& error) {
      throw LinkError(error.what());
    }
  } else {
    gradients_.resize(held_);
    halves_.resize(wire() == WireType::fp32 ? 0 : held_);
    outgoing_.resize(held_);
  }
}

Contribution Session::contribution() const {
  Contribution one{.gradients = {}, .weight = push_->weight, .factor = push_->factor};
  const float* next = gradients_.data();
  for (const ArenaRange& range : ranges_) {
    one.gradients.push_back(shares_memory() ? arenas_.gradients().data() + range.first : next);
    next += range.size();
  }
  return one;
}

void Session::send_state(ServerState state, bool answers) {
  state.request = answers ? request_.number : -1;
  state.shares_memory = shares_memory() ? 1 : 0;
  channel.send(FrameType::state, bytes_of(state));
}

void Session::send_parameters(ServerState state, std::span<const float> values) {
  state.request = waits_since_;
  state.shares_memory = shares_memory() ? 1 : 0;
  if (shares_memory()) {
    const float* from = values.data();
    for (const ArenaRange& range : ranges_) {
      std::copy_n(from, range.size(), arenas_.parameters().data() + range.first);
      from += range.size();
    }
    channel.send(FrameType::parameters, bytes_of(state));
    return;
  }
  if (channel.has_unsent()) {
    throw LinkError("it asks for values faster than it reads them");
  }
  // Copied: the values may change before all is sent.
  std::copy_n(values.data(), outgoing_.size(), outgoing_.data());
  channel.send(FrameType::parameters, bytes_of(state), {std::as_bytes(std::span(outgoing_))});
}

ReadParts Session::body_of(const FrameHeader& header) {
  const auto type = static_cast<FrameType>(header.what);
  if ((type == FrameType::hello) == is_accepted_) {
    unexpected_message();
  }
  switch (type) {
  case FrameType::hello:
    return {writable_bytes_of(hello_)};
  case FrameType::begin:
    values_.resize(header.size > sizeof request_ ? held_ * sizeof(float) : 0);
    return {writable_bytes_of(request_), values_};
  case FrameType::gradients: {
    if (push_ || shares_memory()) {
      unexpected_message();
    }
    const auto all = wire() == WireType::fp32 ? std::as_writable_bytes(std::span(gradients_))
                                              : std::as_writable_bytes(std::span(halves_));
    const auto left = all.subspan(received_ * wire_size(wire()));
    if (header.size > left.size() || header.size % wire_size(wire()) != 0) {
      wrong_length();
    }
    return {left.first(header.size)};
  }
  case FrameType::ask_state:
  case FrameType::push:
  case FrameType::pull:
  case FrameType::next_batch:
    return {writable_bytes_of(request_)};
  case FrameType::heartbeat:
  case FrameType::goodbye:
    return {};
  default:
    unexpected_message();
  }
}

void Session::handle(const FrameHeader& header) {
  const auto type = static_cast<FrameType>(header.what);
  switch (type) {
  case FrameType::hello:
    check(hello_);
    break;
  case FrameType::gradients: {
    const std::size_t count = header.size / wire_size(wire());
    if (wire() != WireType::fp32) {
      wire_kernels(wire()).widen(gradients_.data() + received_, halves_.data() + received_, count);
    }
    received_ += count;
    return;
  }
  case FrameType::push:
    if (push_ || !(request_.weight > 0 && request_.factor > 0 && request_.factor <= 1)) {
      unexpected_message();
    }
    if (std::exchange(received_, 0) != gradients_.size()) {
      wrong_length();
    }
    push_ = request_;
    waits_since_ = request_.number;
    break;
  case FrameType::pull:
    drop_push(); // The worker no longer waits for the values that follow.
    received_ = 0;
    waits_for = request_.step;
    waits_since_ = request_.number;
    break;
  default:
    break;
  }
  serve_(*this, type);
}

} // namespace trainer
