// One thread waits for many descriptors. Level-triggered: a callback that reads only a part is
// called again, so it reads one block and lets the others have their turn.
#pragma once

#include "backends/support/os/fd.h"

#include <chrono>
#include <functional>
#include <unordered_map>

namespace dtrain {

class PollLoop {
 public:
  using Clock = std::chrono::steady_clock;

  /// Throws EngineError where the kernel gives no more descriptors.
  PollLoop();

  /// `ready` is called while `fd` can be read (or has been hung up), until removed. It may remove
  /// any descriptor, its own too.
  void add(int fd, std::function<void()> ready);
  void remove(int fd);

  /// Waits until a descriptor is ready or the deadline has passed (Clock::time_point::max(): for
  /// ever), and calls the callbacks of all that are ready, once each.
  void wait(Clock::time_point deadline);

 private:
  Fd epoll_;
  std::unordered_map<int, std::function<void()>> callbacks_;
};

} // namespace dtrain
