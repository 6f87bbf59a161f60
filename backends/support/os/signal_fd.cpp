#include "backends/support/os/signal_fd.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/signalfd.h>

namespace dtrain {

SignalFd::SignalFd(std::initializer_list<int> signals) {
  sigset_t wanted{};
  sigemptyset(&wanted);
  for (const int signal : signals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) {
      sigaddset(&wanted, signal);
    }
  }
  fd_ = Fd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) {
    throw EngineError(fmt::format("cannot wait for signals: {}", errno_text()));
  }
  sigprocmask(SIG_BLOCK, &wanted, &before_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
}

SignalFd::~SignalFd() {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int SignalFd::take() const {
  signalfd_siginfo info{};
  return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

} // namespace dtrain
