#include "backends/support/os/poll_loop.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace dtrain {

PollLoop::PollLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) {
    throw EngineError(fmt::format("cannot wait for processes: {}", errno_text()));
  }
}

void PollLoop::add(int fd, std::function<void()> ready) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw EngineError(fmt::format("cannot wait for a descriptor: {}", errno_text()));
  }
  callbacks_[fd] = std::move(ready);
}

void PollLoop::remove(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  callbacks_.erase(fd);
}

void PollLoop::wait(Clock::time_point deadline) {
  using std::chrono::milliseconds;
  int timeout = -1;
  if (deadline != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
  }
  std::array<epoll_event, 64> events{};
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  if (count < 0 && errno != EINTR) {
    throw EngineError(fmt::format("cannot wait for processes: {}", errno_text()));
  }
  for (int i = 0; i < count; ++i) {
    const auto found = callbacks_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (found != callbacks_.end()) {
      const auto ready = found->second; // A copy: the callback may remove itself.
      ready();
    }
  }
}

} // namespace dtrain
