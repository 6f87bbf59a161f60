#include "trainer/strategy/parameter_server/coordinator_link.h"

namespace trainer {

CoordinatorLink::CoordinatorLink(const ClientOptions& options)
    : peer_timeout_(options.peer_timeout),
      link_(LinkPurpose::coordinator, "chief", options.servers.front(), options.token,
            options.self) {
  link_.dial(after_seconds(options.rendezvous_timeout), peer_timeout_);
  alive_.emplace(mutex_, beat_seconds(peer_timeout_), [this] { link_.beat(); });
}

std::optional<std::int64_t> CoordinatorLink::next(const WorkReport& report) {
  const std::lock_guard lock(mutex_);
  const Deadline started = Clock::now();
  try {
    link_.ask_for_work(report);
    while (!link_.has_answered()) {
      link_.wait(after_seconds(beat_seconds(peer_timeout_)), peer_timeout_);
    }
  } catch (const ServerLost& lost) {
    throw PeerError(lost.what());
  }
  seconds_waiting_ += -seconds_until(started);
  return link_.work() < 0 ? std::nullopt : std::optional(link_.work());
}

void CoordinatorLink::goodbye() {
  const std::lock_guard lock(mutex_);
  try {
    link_.goodbye();
  } catch (const ServerLost&) {
    return; // It has nothing more to do for this worker.
  }
}

} // namespace trainer
