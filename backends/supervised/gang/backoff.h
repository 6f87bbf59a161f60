// The pause before a restart, so that a rank that always fails at its start does not spin.
#pragma once

#include <algorithm>
#include <chrono>

namespace dtrain {

class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  using Pause = std::chrono::milliseconds;

  static constexpr std::chrono::seconds k_quick{
      10}; ///< A run that fails sooner failed at its start.
  static constexpr Pause k_first{100};
  static constexpr Pause k_longest{60'000};

  /// After a run that began then and failed now: none after one that worked for a while or the
  /// first that did not, then twice as long each time.
  Pause pause_after(Clock::time_point began, Clock::time_point now = Clock::now()) {
    if (now - began >= k_quick) {
      next_ = Pause::zero();
      return Pause::zero();
    }
    const Pause pause = next_;
    next_ = pause == Pause::zero() ? k_first : std::min(2 * pause, k_longest);
    return pause;
  }

 private:
  Pause next_{};
};

} // namespace dtrain
