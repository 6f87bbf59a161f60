#include "trainer/strategy/parameter_server/server_link.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "submit/errors.h"

namespace trainer {

ParameterClient::Server::Server(int index, const std::string& address, std::string token,
                                WorkerHello hello, std::span<float> parameters,
                                std::span<float> gradients)
    : index_(index), address_(address),
      where_(TaskAddress::parse(address, fmt::format("parameter server {}", index))),
      token_(std::move(token)), hello_(std::move(hello)), parameters_(parameters),
      gradients_(gradients) {}

std::string ParameterClient::Server::name() const {
  return fmt::format("ps {} ({})", index_, address_);
}

Score ParameterClient::Server::totals() const noexcept {
  return {totals_before_.loss + totals_.loss, totals_before_.correct + totals_.correct,
          totals_before_.count + totals_.count};
}

std::string ParameterClient::Server::went_back() const {
  return fmt::format("{} went back to step {}", name(), version_);
}

template <typename Act>
void ParameterClient::Server::guarded(const Act& act) {
  try {
    if (!is_open()) {
      throw LinkError("there is no connection");
    }
    act();
  } catch (const LinkError& error) {
    channel_.reset();
    throw ServerLost(fmt::format("worker {} lost {} at step {}: {}; waiting for it", hello_.worker,
                                 name(), version_, error.what()));
  }
  if (!refused_.empty()) {
    throw ClusterError(
        fmt::format("worker {} was refused by {}: {}", hello_.worker, name(), refused_));
  }
}

void ParameterClient::Server::dial(Deadline deadline, double peer_timeout) {
  const Introduction self =
      introduce_self(LinkPurpose::parameter_server, hello_.worker, hello_.workers);
  std::optional<std::string> why;
  try {
    why = dial_until(where_, token_, self, deadline, [&](Fd link) {
      tune_link(link, peer_timeout);
      channel_.emplace(std::move(link), *this);
      try {
        meet(deadline, peer_timeout);
      } catch (const ServerLost& lost) {
        throw LinkError(lost.what());
      }
    });
  } catch (const RefusedError& refused) {
    throw ClusterError(
        fmt::format("worker {} was refused by {}: {}", hello_.worker, name(), refused.what()));
  }
  if (why) {
    throw PeerError(
        fmt::format("worker {} waited for {} in vain, last at step {} ({}): is it running, "
                    "and reachable from here?",
                    hello_.worker, name(), version_, *why));
  }
}

void ParameterClient::Server::meet(Deadline deadline, double peer_timeout) {
  const std::string text = hello_text(hello_);
  FrameHeader header;
  header.type = FrameType::hello;
  welcomed_ = false;
  answered_ = true;
  rolled_back_ = false;
  went_back_for_ = 0;
  refused_.clear();
  heard_ = Clock::now();
  guarded([&] { channel_->send_copy(header, std::as_bytes(std::span(text))); });
  while (!welcomed_) {
    pollfd polled = to_poll();
    poll(&polled, 1, poll_timeout(deadline));
    advance(polled.revents, peer_timeout);
  }
}

pollfd ParameterClient::Server::to_poll() const {
  return {is_open() ? channel_->fd() : -1,
          static_cast<short>(POLLIN | (has_unsent() ? POLLOUT : 0)), 0};
}

void ParameterClient::Server::advance(short ready, double peer_timeout) {
  guarded([&] {
    if (ready != 0) {
      channel_->flush();
      channel_->receive();
      heard_ = Clock::now();
    } else if (const double silent = -seconds_until(heard_); silent > peer_timeout) {
      throw LinkError(fmt::format("silent for {:.0f} s", silent));
    }
  });
}

void ParameterClient::Server::ask(FrameHeader header, WriteParts parts) {
  answered_ = false;
  pushed_ = header.type == FrameType::push;
  header.request = ++request_;
  guarded([&] {
    // Beats lie unread while this rank computes: silence counts from here.
    heard_ = Clock::now();
    channel_->send(header, std::move(parts));
  });
}

void ParameterClient::Server::send_initial() {
  WriteParts parts;
  for (const ArenaRange& range : hello_.ranges) {
    parts.push_back(std::as_bytes(parameters_.subspan(range.first, range.size())));
  }
  FrameHeader header;
  header.type = FrameType::initial;
  guarded([&] { channel_->send(header, std::move(parts)); });
  welcome_.has_values = true;
}

/// What a push carries; in shared memory, rounds what the server will read there.
WriteParts ParameterClient::Server::pushed_gradients() {
  const WireType wire = hello_.policy.gradients;
  WriteParts parts;
  halves_.clear();
  for (const ArenaRange& range : hello_.ranges) {
    const std::span<float> gradients = gradients_.subspan(range.first, range.size());
    if (welcome_.shares_memory) {
      if (wire != WireType::fp32) {
        float* const rounded = gradients.data();
        const float* const given = gradients.data();
        sum_to_all(wire, {&rounded, 1}, {&given, 1}, gradients.size());
      }
    } else if (wire == WireType::fp32) {
      parts.push_back(std::as_bytes(gradients));
    } else {
      const std::size_t begin = halves_.size();
      halves_.resize(begin + gradients.size());
      wire_kernels(wire).narrow(halves_.data() + begin, gradients.data(), gradients.size());
    }
  }
  if (!halves_.empty()) {
    parts.push_back(std::as_bytes(std::span(halves_)));
  }
  return parts;
}

void ParameterClient::Server::push(const FrameHeader& header) {
  FrameHeader mine = header;
  mine.extra = version_;
  ask(mine, pushed_gradients());
}

void ParameterClient::Server::pull(std::int64_t version) {
  FrameHeader header;
  header.type = FrameType::pull;
  header.step = version;
  rolled_back_ = false;
  ask(header);
}

void ParameterClient::Server::ask_rollback(std::int64_t version, std::int64_t incarnation) {
  FrameHeader header;
  header.type = FrameType::rollback;
  header.step = version;
  header.extra = incarnation;
  guarded([&] { channel_->send(header); });
}

void ParameterClient::Server::goodbye() {
  FrameHeader header;
  header.type = FrameType::goodbye;
  if (is_open()) {
    guarded([&] { channel_->send(header); });
  }
}

void ParameterClient::Server::beat() noexcept {
  try {
    if (is_open() && !channel_->has_unsent()) {
      channel_->send({});
    }
  } catch (...) {
    return; // Whoever needs the connection next finds out.
  }
}

ReadParts ParameterClient::Server::payload_of(const FrameHeader& header) {
  switch (header.type) {
  case FrameType::welcome:
  case FrameType::refused:
    if (header.bytes > k_longest_text) {
      throw LinkError("it sent a frame of an unexpected length");
    }
    text_.resize(header.bytes);
    return {text_};
  case FrameType::parameters: {
    ReadParts parts;
    for (std::size_t i = 0; !welcome_.shares_memory && i < hello_.ranges.size(); ++i) {
      const ArenaRange& range = hello_.ranges[i];
      parts.push_back(std::as_writable_bytes(parameters_.subspan(range.first, range.size())));
    }
    return parts;
  }
  case FrameType::rolled_back:
  case FrameType::beat:
    return {};
  default:
    throw LinkError("it sent a frame that was not due");
  }
}

void ParameterClient::Server::handle(const FrameHeader& header) {
  const auto text = [&] {
    return std::string(reinterpret_cast<const char*>(text_.data()), text_.size());
  };
  switch (header.type) {
  case FrameType::welcome:
    if (ServerWelcome welcome = parse_welcome(text());
        welcome.incarnation != std::exchange(welcome_, welcome).incarnation) {
      totals_before_ = totals();
      totals_ = {};
    }
    version_ = welcome_.version;
    welcomed_ = true;
    break;
  case FrameType::refused:
    refused_ = dtrain::printable(text());
    break;
  case FrameType::parameters:
    if (header.request != request_) {
      break; // Asked for before the servers went back.
    }
    version_ = header.step;
    totals_ = {header.loss, header.correct, header.count};
    first_worker_ = header.extra;
    welcome_.resumed = false;
    answered_ = true;
    break;
  case FrameType::rolled_back:
    version_ = header.step;
    went_back_for_ = header.extra;
    rolled_back_ = true;
    pushed_ = false; // It was dropped.
    break;
  default:
    break;
  }
}

} // namespace trainer
