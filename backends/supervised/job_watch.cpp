#include "backends/supervised/job_watch.h"

#include "backends/supervised/job_view.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>

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
  const bool is_here = whereabouts(owner.machine) == Whereabouts::here;
  guard_ = is_here ? open_process(owner.guard) : Fd();
  supervisor_ = is_here ? open_process(owner.supervisor) : Fd();
  is_elsewhere_ = !is_within_reach(owner);
}

void JobWatch::wait() {
  const bool is_first_look = !started_ && Clock::now() < first_look_ends_;
  if (!is_first_look && !started_) {
    start();
    return; // What changed before is still to be looked at.
  }
  const bool polls = !inotify_ || is_elsewhere_;
  // poll() leaves out negative descriptors.
  std::array<pollfd, 3> descriptors{pollfd{inotify_.get(), POLLIN, 0},
                                    pollfd{guard_.get(), POLLIN, 0},
                                    pollfd{supervisor_.get(), POLLIN, 0}};
  poll(descriptors.data(), descriptors.size(),
       is_first_look ? k_first_look_ms
       : polls       ? k_fallback_ms
                     : -1);
  if (descriptors[1].revents != 0) {
    guard_.reset();
  }
  if (descriptors[2].revents != 0) {
    supervisor_.reset();
  }
  std::array<char, 4096> events{};
  while (inotify_ && read(inotify_.get(), events.data(), events.size()) > 0) {
  }
}

} // namespace dtrain
