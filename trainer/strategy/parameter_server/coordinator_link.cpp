#include "trainer/strategy/parameter_server/coordinator_link.h"

#include <cstring>

#include <fmt/format.h>

#include "submit/errors.h"
#include "trainer/job/frames.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {
namespace {

void tell(const Fd& link, FrameType type, std::span<const std::byte> body, Deadline deadline) {
  send_frame(link, static_cast<std::uint32_t>(type), body, deadline);
}

} // namespace

CoordinatorLink::CoordinatorLink(CoordinatorLinkOptions options)
    : options_(std::move(options)), where_(TaskAddress::parse(options_.address, "the chief")) {
  const Introduction self =
      introduce_self(LinkPurpose::coordinator, options_.worker, options_.workers);
  const Deadline deadline = after_seconds(options_.rendezvous_timeout);
  std::optional<std::string> why;
  try {
    why = dial_until(where_, options_.token, self, deadline, [&](Fd link) {
      link_ = std::move(link);
      meet(deadline);
    });
  } catch (const RefusedError& refused) {
    throw ClusterError(
        fmt::format("worker {} was refused by {}: {}", options_.worker, name(), refused.what()));
  }
  if (why) {
    throw PeerError(fmt::format("worker {} waited for {} in vain ({}): is it running, and "
                                "reachable from here?",
                                options_.worker, name(), *why));
  }
  alive_.emplace(mutex_, beat_seconds(options_.peer_timeout), [this] {
    try {
      tell(link_, FrameType::beat, {}, after_seconds(options_.peer_timeout));
    } catch (const LinkError&) {
      return; // next() finds out.
    }
  });
}

/// Returns when it is welcome. Throws RefusedError, LinkError.
void CoordinatorLink::meet(Deadline deadline) {
  tune_link(link_, options_.peer_timeout);
  tell(link_, FrameType::hello,
       bytes_of_text(nlohmann::json{{"job", options_.job}, {"samples", options_.samples}}.dump()),
       deadline);
  const Frame answer = receive_frame(link_, k_longest_text, deadline);
  if (answer.what == static_cast<std::uint32_t>(FrameType::refused)) {
    throw RefusedError(dtrain::printable(text_of(answer.body)));
  }
  if (answer.what != static_cast<std::uint32_t>(FrameType::welcome)) {
    not_due();
  }
}

std::optional<std::int64_t> CoordinatorLink::next(const WorkReport& report) {
  const std::lock_guard lock(mutex_);
  const Deadline started = Clock::now();
  std::int64_t batch = -1;
  try {
    const Deadline deadline = after_seconds(options_.peer_timeout);
    tell(link_, FrameType::ask, bytes_of(report), deadline);
    const Frame answer = receive_frame(link_, sizeof batch, deadline);
    if (answer.what != static_cast<std::uint32_t>(FrameType::work) ||
        answer.body.size() != sizeof batch) {
      not_due();
    }
    std::memcpy(&batch, answer.body.data(), sizeof batch);
  } catch (const LinkError& error) {
    throw PeerError(fmt::format("worker {} lost {} at step {}: {}; a job ends with its coordinator",
                                options_.worker, name(), report.version, error.what()));
  }
  seconds_waiting_ += -seconds_until(started);
  return batch < 0 ? std::nullopt : std::optional(batch);
}

void CoordinatorLink::goodbye() {
  const std::lock_guard lock(mutex_);
  try {
    tell(link_, FrameType::goodbye, {}, after_seconds(options_.peer_timeout));
  } catch (const LinkError&) {
    return; // It has nothing more to do for this worker.
  }
}

std::string CoordinatorLink::name() const { return fmt::format("chief ({})", options_.address); }

} // namespace trainer
