#include "cli/interrupt.h"

#include "cli/exit_codes.h"

#include <csignal>
#include <cstddef>

#include <sys/time.h>
#include <unistd.h>

namespace dtrain {
namespace {

// Texts of the handlers. A handler can only reach static data; it is set before the handler is
// installed and outlives it.
std::string g_farewell; // NOLINT: see above
std::string g_deadline; // NOLINT: see above

void leave(const std::string& message, int status) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message.data(), message.size());
  _exit(status);
}

void on_interrupt(int signal) {
  signal == SIGINT ? leave(g_farewell, k_exit_interrupted) : _exit(k_exit_terminated);
}

volatile std::sig_atomic_t g_noted = 0; // NOLINT: see above

void on_noted(int signal) { g_noted = g_noted == 0 ? signal : g_noted; }

void on_deadline(int) { leave(g_deadline, k_exit_timeout); }

void handle(int signal, void (*handler)(int)) {
  struct sigaction old = {};
  sigaction(signal, nullptr, &old);
  if (old.sa_handler == SIG_IGN) {
    return;
  }
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

void set_timer(std::chrono::nanoseconds after) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(after).count();
  constexpr std::int64_t k_million = 1'000'000;
  itimerval timer = {};
  timer.it_value = {micros / k_million, micros % k_million};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

} // namespace

DetachOnInterrupt::DetachOnInterrupt(std::string farewell) {
  // Below the terminal's own "^C".
  g_farewell = (isatty(STDERR_FILENO) == 1 ? "\n" : "") + std::move(farewell) + "\n";
  handle(SIGINT, on_interrupt);
  handle(SIGTERM, on_interrupt);
}

DetachOnInterrupt::~DetachOnInterrupt() {
  handle(SIGINT, SIG_DFL);
  handle(SIGTERM, SIG_DFL);
}

NoteInterrupt::NoteInterrupt() {
  g_noted = 0;
  handle(SIGINT, on_noted);
  handle(SIGTERM, on_noted);
}

NoteInterrupt::~NoteInterrupt() {
  handle(SIGINT, SIG_DFL);
  handle(SIGTERM, SIG_DFL);
}

int NoteInterrupt::signal() const { return g_noted; }

Deadline::Deadline(std::chrono::nanoseconds after, std::string message) {
  if (after > std::chrono::nanoseconds::zero()) {
    g_deadline = std::move(message) + "\n";
    handle(SIGALRM, on_deadline);
    set_timer(after);
  }
}

Deadline::~Deadline() {
  set_timer({});
  handle(SIGALRM, SIG_DFL);
}

} // namespace dtrain
