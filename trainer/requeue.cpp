#include "trainer/requeue.h"

#include <atomic>
#include <csignal>

namespace trainer {
namespace {

std::atomic<bool> is_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);

} // namespace

void ignore_requeue() { std::signal(SIGUSR1, SIG_IGN); }

void heed_requeue() {
  std::signal(SIGUSR1, [](int) { is_asked = true; });
}

bool requeue_is_asked() { return is_asked; }

} // namespace trainer
