// Signals as something to poll, instead of handlers.
#pragma once

#include "backends/support/os/fd.h"

#include <initializer_list>

#include <csignal>

namespace dtrain {

/// During its lifetime the signals wait here; a signal that was ignored at start (nohup) stays
/// ignored. SIGPIPE is ignored meanwhile: writing returns EPIPE. Create it while there is one
/// thread.
class SignalFd {
 public:
  explicit SignalFd(std::initializer_list<int> signals);
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  int fd() const { return fd_.get(); }

  /// The next that has come; 0: none.
  int take() const;

 private:
  sigset_t before_{};
  struct sigaction pipe_before_ {};
  Fd fd_;
};

} // namespace dtrain
