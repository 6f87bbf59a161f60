#include "trainer/run/requeue.h"

#include <atomic>
#include <csignal>

namespace trainer {
namespace {

std::atomic<int> signal_asked = 0;
static_assert(std::atomic<int>::is_always_lock_free);

} // namespace

void ignore_requeue() { std::signal(SIGUSR1, SIG_IGN); }

void heed_requeue(const std::string& signals) {
  const auto note = [](int number) { signal_asked = number; };
  if (signals != "term") {
    std::signal(SIGUSR1, note);
  }
  if (signals != "usr1") {
    std::signal(SIGTERM, note);
  }
}

bool requeue_is_asked() { return signal_asked != 0; }

const char* requeue_signal() { return signal_asked == SIGTERM ? "SIGTERM" : "SIGUSR1"; }

} // namespace trainer
