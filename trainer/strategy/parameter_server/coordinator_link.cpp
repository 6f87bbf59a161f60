#include "trainer/strategy/parameter_server/coordinator_link.h"

#include <fmt/format.h>
#include <poll.h>

#include "submit/errors.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {
CoordinatorLink::CoordinatorLink(CoordinatorLinkOptions options)
    : options_(std::move(options)), where_(TaskAddress::parse(options_.address, "the chief")) {
  const Introduction self =
      introduce_self(LinkPurpose::coordinator, options_.worker, options_.workers);
  const Deadline deadline = after_seconds(options_.rendezvous_timeout);
  std::optional<std::string> why;
  try {
    why = dial_until(where_, options_.token, self, deadline,
                     [&](Fd link) { meet(std::move(link), deadline); });
  } catch (const RefusedError& refused) {
    refused_ = refused.what();
  }
  if (!refused_.empty()) {
    throw ClusterError(
        fmt::format("worker {} was refused by {}: {}", options_.worker, name(), refused_));
  }
  if (why) {
    throw PeerError(fmt::format("worker {} waited for {} in vain ({}): is it running, and "
                                "reachable from here?",
                                options_.worker, name(), *why));
  }
  alive_.emplace(mutex_, beat_seconds(options_.peer_timeout), [this] {
    try {
      if (!channel_->has_unsent()) {
        channel_->send({});
      }
    } catch (const LinkError&) {
      return; // next() finds out.
    }
  });
}

CoordinatorLink::~CoordinatorLink() = default;

std::string CoordinatorLink::name() const { return fmt::format("chief ({})", options_.address); }

/// Returns when it is welcome, or refused_ says why not.
void CoordinatorLink::meet(Fd link, Deadline deadline) {
  tune_link(link, options_.peer_timeout);
  channel_.emplace(std::move(link), *this);
  const std::string text =
      nlohmann::json{{"job", options_.job}, {"samples", options_.samples}}.dump();
  FrameHeader header;
  header.type = FrameType::hello;
  channel_->send_copy(header, std::as_bytes(std::span(text)));
  due_ = Due::welcome;
  await(deadline);
}

/// Returns when what is due has come. Throws LinkError.
void CoordinatorLink::await(Deadline deadline) {
  while (due_ != Due::nothing && refused_.empty()) {
    const short out = channel_->has_unsent() ? POLLOUT : 0;
    pollfd polled = {channel_->fd(), static_cast<short>(POLLIN | out), 0};
    if (poll(&polled, 1, poll_timeout(deadline)) == 0) {
      throw LinkError(fmt::format("silent for {:g} s", options_.peer_timeout));
    }
    channel_->flush();
    channel_->receive();
  }
}

std::optional<std::int64_t> CoordinatorLink::next(const WorkReport& report) {
  const std::lock_guard lock(mutex_);
  const Deadline started = Clock::now();
  try {
    FrameHeader header;
    header.type = FrameType::ask;
    channel_->send_copy(header, bytes_of(report));
    due_ = Due::work;
    await(after_seconds(options_.peer_timeout));
  } catch (const LinkError& error) {
    throw PeerError(fmt::format("worker {} lost {} at step {}: {}; a job ends with its coordinator",
                                options_.worker, name(), report.version, error.what()));
  }
  seconds_waiting_ += -seconds_until(started);
  return batch_ < 0 ? std::nullopt : std::optional(batch_);
}

void CoordinatorLink::goodbye() {
  const std::lock_guard lock(mutex_);
  FrameHeader header;
  header.type = FrameType::goodbye;
  try {
    channel_->send(header);
  } catch (const LinkError&) {
    return; // It has nothing more to do for this worker.
  }
}

ReadParts CoordinatorLink::payload_of(const FrameHeader& header) {
  if (header.type == FrameType::refused) {
    if (header.bytes > k_longest_text) {
      throw LinkError("it sent a frame of an unexpected length");
    }
    text_.resize(header.bytes);
    return {text_};
  }
  const bool is_due = (header.type == FrameType::welcome && due_ == Due::welcome) ||
                      (header.type == FrameType::work && due_ == Due::work);
  if (!is_due) {
    throw LinkError("it sent a frame that was not due");
  }
  return {};
}

void CoordinatorLink::handle(const FrameHeader& header) {
  if (header.type == FrameType::refused) {
    refused_ = dtrain::printable({reinterpret_cast<const char*>(text_.data()), text_.size()});
  } else {
    due_ = Due::nothing;
    batch_ = header.step;
  }
}

} // namespace trainer
