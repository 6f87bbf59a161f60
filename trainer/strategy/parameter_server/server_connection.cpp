#include "trainer/strategy/parameter_server/server_connection.h"

#include <algorithm>

#include <fmt/format.h>

#include "submit/errors.h"

namespace trainer {

ParameterClient::Server::Server(ParameterClient& client, LinkPurpose purpose, std::string address,
                                const WorkerHello& hello)
    : client_(client), purpose_(purpose), address_(std::move(address)), hello_(hello),
      ranges_(hello.ranges()) {}

std::string ParameterClient::Server::title() const {
  return is_chief() ? "chief" : fmt::format("ps {}", hello_.server);
}

std::string ParameterClient::Server::name() const {
  return fmt::format("{} ({})", title(), address_);
}

Score ParameterClient::Server::totals() const noexcept {
  Score all = totals_before_;
  return all += values_.totals;
}

template <typename Act>
void ParameterClient::Server::guarded(const Act& act) {
  try {
    if (!is_open()) {
      throw LinkError(why_);
    }
    act();
  } catch (const LinkError& error) {
    channel_.reset();
    why_ = error.what();
    if (refused_.empty()) { // Otherwise it closed the connection after saying why.
      throw ServerLost(
          fmt::format("worker {} lost {} at step {}: {}; {}", hello_.worker, name(), version(),
                      why_, is_chief() ? "a job ends with its coordinator" : "waiting for it"));
    }
  }
  if (!refused_.empty()) {
    throw_refused(refused_);
  }
}

void ParameterClient::Server::throw_refused(const std::string& why) const {
  throw ClusterError(fmt::format("worker {} was refused by {}: {}", hello_.worker, name(), why));
}

void ParameterClient::Server::dial() {
  const Deadline deadline = after_seconds(client_.job_.rendezvous_timeout);
  const auto meet = [&](Fd link) {
    tune_link(link, client_.job_.peer_timeout);
    channel_.emplace(std::move(link), *this);
    request_ = 0;
    answered_ = false;
    sent_ = 0;
    refused_.clear();
    try {
      guarded([&] { channel_->send(FrameType::hello, bytes_of(hello_)); });
      while (!answered_) {
        pollfd polled = channel_->to_poll();
        poll(&polled, 1, poll_timeout(deadline));
        advance(polled.revents);
      }
    } catch (const ServerLost& lost) {
      throw LinkError(lost.what());
    }
  };
  try {
    const auto why = dial_until(
        TaskAddress::parse(address_, title()), client_.job_.task.token,
        introduce_self(purpose_, static_cast<int>(hello_.worker), static_cast<int>(hello_.workers)),
        deadline, meet);
    if (why) {
      throw PeerError(
          fmt::format("worker {} waited for {} in vain, last at step {} ({}): is it running, "
                      "and reachable from here?",
                      hello_.worker, name(), version(), *why));
    }
  } catch (const RefusedError& refused) {
    throw_refused(refused.what());
  }
}

void ParameterClient::Server::advance(short ready) {
  guarded([&] { channel_->advance(ready, client_.job_.peer_timeout); });
}

void ParameterClient::Server::ask(FrameType type, Request request) {
  answered_ = false;
  sent_ = 0;
  request.number = ++request_;
  if (is_chief()) {
    values_.version = request.step; // The worker has the values of other servers.
  } else {
    request.generation = values_.generation;
  }
  guarded([&] { channel_->send(type, bytes_of(request)); });
}

void ParameterClient::Server::begin(std::int64_t generation, std::int64_t version) {
  if (values_.generation != generation) {
    totals_before_ = totals();
    values_ = {.generation = generation};
  }
  if (state_.generation >= generation) {
    return;
  }
  WriteParts values;
  for (const ArenaRange& range : ranges_) {
    if (version < 0) {
      values.push_back(std::as_bytes(client_.parameters_.subspan(range.first, range.size())));
    }
  }
  const Request request{.generation = generation, .step = version};
  guarded([&] { channel_->send(FrameType::begin, bytes_of(request), std::move(values)); });
}

/// Sends the gradients among the first `count` of the arena that were not sent yet; in shared
/// memory, rounds those that the server will read there.
void ParameterClient::Server::send_gradients(std::size_t count) {
  const WireType wire = hello_.gradients();
  WriteParts parts;
  for (const ArenaRange& range : ranges_) {
    const std::size_t first = std::max(range.first, sent_);
    const std::size_t last = std::min(range.last, count);
    if (first >= last) {
      continue;
    }
    const std::span<float> piece = client_.gradients_.subspan(first, last - first);
    if (state_.shares_memory != 0) {
      float* const rounded = piece.data();
      const float* const given = piece.data();
      if (wire != WireType::fp32) {
        sum_to_all(wire, {&rounded, 1}, {&given, 1}, piece.size());
      }
    } else if (wire == WireType::fp32) {
      parts.push_back(std::as_bytes(piece));
    } else {
      std::uint16_t* const halves = client_.halves_.data() + first;
      wire_kernels(wire).narrow(halves, piece.data(), piece.size());
      parts.push_back(std::as_bytes(std::span(halves, piece.size())));
    }
  }
  sent_ = count;
  if (!parts.empty()) {
    channel_->send(FrameType::gradients, {}, std::move(parts));
  }
}

void ParameterClient::Server::send_final(std::size_t count) {
  try {
    if (is_open() && state_.shares_memory == 0) {
      guarded([&] {
        send_gradients(count);
        channel_->flush();
      });
    }
  } catch (const ServerLost&) {
    return; // push() reports the loss.
  }
}

void ParameterClient::Server::push(Request request) {
  guarded([&] { send_gradients(SIZE_MAX); });
  request.version = version();
  ask(FrameType::push, request);
}

void ParameterClient::Server::goodbye() {
  if (is_open()) {
    guarded([&] { channel_->send(FrameType::goodbye); });
  }
}

void ParameterClient::Server::send_heartbeat() noexcept {
  try {
    if (is_open()) {
      channel_->has_unsent() ? channel_->flush() : channel_->send(FrameType::heartbeat);
    }
  } catch (...) {
    return; // The next use of the connection reports it.
  }
}

ReadParts ParameterClient::Server::body_of(const FrameHeader& header) {
  switch (static_cast<FrameType>(header.what)) {
  case FrameType::refused:
    if (header.size > k_longest_text) {
      wrong_length();
    }
    text_.resize(header.size);
    return {std::as_writable_bytes(std::span(text_))};
  case FrameType::state:
    return {writable_bytes_of(coming_)};
  case FrameType::parameters: {
    ReadParts parts = {writable_bytes_of(coming_)};
    for (std::size_t i = 0; state_.shares_memory == 0 && i < ranges_.size(); ++i) {
      const ArenaRange& range = ranges_[i];
      parts.push_back(
          std::as_writable_bytes(client_.parameters_.subspan(range.first, range.size())));
    }
    return parts;
  }
  case FrameType::heartbeat:
    return {};
  default:
    unexpected_message();
  }
}

void ParameterClient::Server::handle(const FrameHeader& header) {
  const auto type = static_cast<FrameType>(header.what);
  if (type == FrameType::refused) {
    refused_ = dtrain::printable(text_);
  }
  if (type != FrameType::state && type != FrameType::parameters) {
    return;
  }
  state_ = coming_;
  if (state_.request == request_) { // Otherwise the request predates a restart of the servers.
    answered_ = true;
    if (type == FrameType::parameters) {
      values_ = state_;
    }
  }
}

} // namespace trainer
