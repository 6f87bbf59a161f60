#include "trainer/strategy/parameter_server/session.h"

#include <algorithm>

#include <fmt/format.h>

namespace trainer {
namespace {

[[noreturn]] void unexpected() { throw LinkError("it sent a frame that was not due"); }

} // namespace

std::string Session::name() const {
  return hello_ ? fmt::format("worker {} ({}, pid {})", hello_->worker, who.host, who.pid)
                : fmt::format("a worker of {} (pid {})", who.host, who.pid);
}

void Session::accept(WorkerHello hello, const ShardStore& store) {
  hello_ = std::move(hello);
  if (const SharedFile file = SharedFile::open(hello_->memory)) {
    try {
      arenas_ = file.map(0, SharedLayout(hello_->arena).size);
    } catch (const LinkError&) {
      throw;
    } catch (const Error& error) {
      throw LinkError(error.what());
    }
  } else {
    gradients_.resize(store.parameters().size());
    halves_.resize(wire() == WireType::fp32 ? 0 : store.parameters().size());
    outgoing_.resize(store.parameters().size());
  }
}

Contribution Session::contribution(const ShardStore& store) const {
  Contribution one;
  const auto* shared = reinterpret_cast<const float*>(
      shares_memory() ? arenas_.data() + SharedLayout(hello_->arena).gradients : nullptr);
  const float* next = gradients_.data();
  for (const ArenaRange& range : store.ranges()) {
    one.gradients.push_back(shares_memory() ? shared + range.first : next);
    next += range.size();
  }
  one.weight = push_ ? push_->weight : 0;
  return one;
}

void Session::send_parameters(FrameHeader header, const ShardStore& store) {
  header.type = FrameType::parameters;
  header.request = request;
  if (shares_memory()) {
    auto* to = reinterpret_cast<float*>(arenas_.data() + SharedLayout(hello_->arena).parameters);
    const float* from = store.parameters().data();
    for (const ArenaRange& range : store.ranges()) {
      std::copy_n(from, range.size(), to + range.first);
      from += range.size();
    }
    shared_bytes += store.parameters().size_bytes();
    channel.send(header);
    return;
  }
  if (channel.has_unsent()) {
    throw LinkError("it asks for values faster than it reads them");
  }
  // The store may change before all is sent.
  std::copy_n(store.parameters().data(), outgoing_.size(), outgoing_.data());
  channel.send(header, {std::as_bytes(std::span(outgoing_))});
}

ReadParts Session::payload_of(const FrameHeader& header) {
  const auto text_of = [&](std::size_t longest) {
    if (header.bytes > longest) {
      throw LinkError("it sent a frame of an unexpected length");
    }
    text_.resize(header.bytes);
    return ReadParts{text_};
  };
  if (!hello_) {
    if (header.type != FrameType::hello) {
      unexpected();
    }
    return text_of(k_longest_text);
  }
  switch (header.type) {
  case FrameType::initial:
    return text_of(owner_.store().parameters().size_bytes());
  case FrameType::push:
    if (push_ || !(header.weight > 0)) {
      unexpected();
    }
    if (shares_memory()) {
      return {};
    }
    return wire() == WireType::fp32 ? ReadParts{std::as_writable_bytes(std::span(gradients_))}
                                    : ReadParts{std::as_writable_bytes(std::span(halves_))};
  case FrameType::pull:
  case FrameType::rollback:
  case FrameType::beat:
  case FrameType::goodbye:
    return {};
  default:
    unexpected();
  }
}

void Session::handle(const FrameHeader& header) {
  switch (header.type) {
  case FrameType::hello:
    owner_.hello(*this, parse_hello({reinterpret_cast<const char*>(text_.data()), text_.size()}));
    break;
  case FrameType::initial:
    owner_.initial(text_);
    break;
  case FrameType::push:
    push_ = header;
    request = header.request;
    if (shares_memory()) {
      shared_bytes += owner_.store().parameters().size_bytes();
    } else if (wire() != WireType::fp32) {
      wire_kernels(wire()).widen(gradients_.data(), halves_.data(), halves_.size());
    }
    owner_.pushed(*this);
    break;
  case FrameType::pull:
    drop_push(); // It has given up waiting for the values that follow.
    waits_for = header.step;
    request = header.request;
    owner_.pull(*this);
    break;
  case FrameType::rollback:
    owner_.rollback(*this, header.step, header.extra);
    break;
  case FrameType::goodbye:
    owner_.goodbye(*this);
    break;
  default:
    break; // A beat says no more than that it came.
  }
}

} // namespace trainer
