#include "trainer/strategy/parameter_server/session.h"

#include <algorithm>

#include <fmt/format.h>

namespace trainer {
std::string Session::name() const {
  return is_accepted_ ? fmt::format("worker {} ({}, pid {})", hello_.worker, who.host, who.pid)
                      : fmt::format("a worker of {} (pid {})", who.host, who.pid);
}

void Session::accept(const WorkerHello& hello) {
  hello_ = hello;
  is_accepted_ = true;
  ranges_ = hello.ranges();
  held_ = floats_in(ranges_);
  if (const SharedFile file = SharedFile::open(hello_.memory)) {
    try {
      arenas_ = file.map(0, SharedLayout(hello_.arena).size);
    } catch (const LinkError&) {
      throw;
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
  Contribution one;
  const auto* shared = reinterpret_cast<const float*>(
      shares_memory() ? arenas_.data() + SharedLayout(hello_.arena).gradients : nullptr);
  const float* next = gradients_.data();
  for (const ArenaRange& range : ranges_) {
    one.gradients.push_back(shares_memory() ? shared + range.first : next);
    next += range.size();
  }
  one.weight = push_ ? push_->weight : 0;
  one.factor = push_ ? push_->factor : 1;
  return one;
}

void Session::send_parameters(FrameFields fields, std::span<const float> values) {
  fields.request = request;
  if (shares_memory()) {
    auto* to = reinterpret_cast<float*>(arenas_.data() + SharedLayout(hello_.arena).parameters);
    const float* from = values.data();
    for (const ArenaRange& range : ranges_) {
      std::copy_n(from, range.size(), to + range.first);
      from += range.size();
    }
    shared_bytes += values.size_bytes();
    channel.send(FrameType::parameters, bytes_of(fields));
    return;
  }
  if (channel.has_unsent()) {
    throw LinkError("it asks for values faster than it reads them");
  }
  // They may change before all is sent.
  std::copy_n(values.data(), outgoing_.size(), outgoing_.data());
  channel.send(FrameType::parameters, bytes_of(fields), {std::as_bytes(std::span(outgoing_))});
}

ReadParts Session::body_of(const FrameHeader& header) {
  const auto type = static_cast<FrameType>(header.what);
  if (!is_accepted_) {
    if (type != FrameType::hello) {
      not_due();
    }
    return {writable_bytes_of(hello_)};
  }
  switch (type) {
  case FrameType::begin:
    values_.resize(header.size > sizeof fields_ ? held_ * sizeof(float) : 0);
    return {writable_bytes_of(fields_), values_};
  case FrameType::gradients: {
    if (push_ || shares_memory()) {
      not_due();
    }
    const auto all = wire() == WireType::fp32 ? std::as_writable_bytes(std::span(gradients_))
                                              : std::as_writable_bytes(std::span(halves_));
    const auto left = all.subspan(received_ * wire_size(wire()));
    if (header.size > left.size() || header.size % wire_size(wire()) != 0) {
      wrong_length();
    }
    return {left.first(header.size)};
  }
  case FrameType::push:
  case FrameType::pull:
    return {writable_bytes_of(fields_)};
  case FrameType::ask:
    return {writable_bytes_of(report_)};
  case FrameType::welcome:
  case FrameType::heartbeat:
  case FrameType::goodbye:
    return {};
  default:
    not_due();
  }
}

void Session::handle(const FrameHeader& header) {
  switch (static_cast<FrameType>(header.what)) {
  case FrameType::hello:
    check(hello_);
    owner_.hello(*this, hello_);
    break;
  case FrameType::welcome:
    owner_.welcome(*this);
    break;
  case FrameType::begin:
    received_ = 0;
    owner_.begin(*this, fields_, values_);
    break;
  case FrameType::gradients: {
    const std::size_t count = header.size / wire_size(wire());
    if (wire() != WireType::fp32) {
      wire_kernels(wire()).widen(gradients_.data() + received_, halves_.data() + received_, count);
    }
    received_ += count;
    break;
  }
  case FrameType::push:
    if (push_ || !(fields_.weight > 0 && fields_.factor > 0 && fields_.factor <= 1)) {
      not_due();
    }
    if (std::exchange(received_, 0) != gradients_.size()) {
      wrong_length();
    }
    push_ = fields_;
    request = fields_.request;
    if (shares_memory()) {
      shared_bytes += held_ * sizeof(float);
    }
    owner_.pushed(*this);
    break;
  case FrameType::pull:
    drop_push(); // It has given up waiting for the values that follow.
    received_ = 0;
    waits_for = fields_.step;
    request = fields_.request;
    owner_.pull(*this);
    break;
  case FrameType::ask:
    owner_.ask(*this, report_);
    break;
  case FrameType::goodbye:
    owner_.goodbye(*this);
    break;
  default:
    break; // A heartbeat says no more than that it came.
  }
}

} // namespace trainer
