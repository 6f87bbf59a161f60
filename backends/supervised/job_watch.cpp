#include "backends/supervised/job_watch.h"

#include "backends/supervised/job_view.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>

#include <array>

namespace dtrain {

JobWatch::JobWatch(const JobFolder& folder, bool with_logs)
    : inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  // By descriptor, not by name: the name may be another job's by now.
  const auto path = fmt::format("/proc/self/fd/{}", folder.fd());
  bool watching = inotify_ && inotify_add_watch(inotify_.get(), (path + "/.").c_str(),
                                                IN_MOVED_TO | IN_DELETE_SELF) >= 0;
  if (watching && with_logs) {
    watching =
        inotify_add_watch(inotify_.get(), (path + "/logs").c_str(), IN_CREATE | IN_MODIFY) >= 0;
  }
  if (!watching) {
    inotify_.reset();
  }
  polls_ = !watching;
}

void JobWatch::follow(const JobOwner& owner) {
  const bool is_here = whereabouts(owner.machine) == Whereabouts::here;
  guard_ = is_here ? open_process(owner.guard) : Fd();
  supervisor_ = is_here ? open_process(owner.supervisor) : Fd();
  polls_ = !inotify_ || !is_within_reach(owner);
}

void JobWatch::wait() {
  // poll() leaves out negative descriptors.
  std::array<pollfd, 3> descriptors{pollfd{inotify_.get(), POLLIN, 0},
                                    pollfd{guard_.get(), POLLIN, 0},
                                    pollfd{supervisor_.get(), POLLIN, 0}};
  poll(descriptors.data(), descriptors.size(), polls_ ? k_fallback_ms : -1);
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
