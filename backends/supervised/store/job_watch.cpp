#include "backends/supervised/store/job_watch.h"

#include "backends/supervised/store/job_view.h"

#include <fmt/format.h>
#include <sys/inotify.h>

#include <algorithm>
#include <array>

namespace dtrain {

JobWatch::JobWatch(const JobFolder& folder, bool with_logs)
    : folder_(folder), with_logs_(with_logs), first_look_ends_(Clock::now() + k_first_look) {}

void JobWatch::start() {
  started_ = true;
  inotify_ = Fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  // By descriptor, not by name: the name may be another job's by now.
  const auto path = fmt::format("/proc/self/fd/{}", folder_.fd());
  bool watching = inotify_ && inotify_add_watch(inotify_.get(), (path + "/.").c_str(),
                                                IN_MOVED_TO | IN_DELETE_SELF) >= 0;
  if (watching && with_logs_) {
    watching =
        inotify_add_watch(inotify_.get(), (path + "/logs").c_str(), IN_CREATE | IN_MODIFY) >= 0;
  }
  if (!watching) {
    inotify_.reset();
  }
}

void JobWatch::follow(const JobOwner& owner) {
  if (owner == owner_) {
    return;
  }
  owner_ = owner;
  const bool is_here = whereabouts(owner.machine) == Whereabouts::here;
  guard_ = is_here ? open_process(owner.guard) : Fd();
  supervisor_ = is_here ? open_process(owner.supervisor) : Fd();
  is_elsewhere_ = !is_within_reach(owner);
}

/// In milliseconds; -1: until something happens.
int JobWatch::timeout() const {
  if (!started_) {
    return is_first_look() ? k_first_look_ms : 0;
  }
  return !inotify_ || is_elsewhere_ ? k_fallback_ms : -1;
}

/// Takes poll()'s results for its descriptors.
void JobWatch::take(const pollfd* polled) {
  changed_ = changed_ || timeout() >= 0;
  if (!started_ && !is_first_look()) {
    start(); // Earlier changes are still to be looked at.
  }
  for (std::size_t i = 0; i < k_descriptors; ++i) {
    changed_ = changed_ || polled[i].revents != 0;
  }
  if (polled[1].revents != 0) {
    guard_.reset();
  }
  if (polled[2].revents != 0) {
    supervisor_.reset();
  }
  std::array<char, 4096> events{};
  while (inotify_ && read(inotify_.get(), events.data(), events.size()) > 0) {
  }
}

void JobWatch::wait_any(const std::vector<JobWatch*>& watches) {
  std::vector<pollfd> polled;
  polled.reserve(watches.size() * k_descriptors);
  int timeout = -1;
  for (const JobWatch* watch : watches) {
    // poll() leaves out negative descriptors.
    for (const Fd* each : {&watch->inotify_, &watch->guard_, &watch->supervisor_}) {
      polled.push_back({each->get(), POLLIN, 0});
    }
    if (const int own = watch->timeout(); own >= 0) {
      timeout = timeout < 0 ? own : std::min(timeout, own);
    }
  }
  poll(polled.data(), polled.size(), timeout);
  for (std::size_t i = 0; i < watches.size(); ++i) {
    watches[i]->take(&polled[i * k_descriptors]);
  }
}

} // namespace dtrain
