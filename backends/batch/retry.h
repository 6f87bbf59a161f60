// When the queue is asked again: how often while a job is followed, and for how long while its
// controller does not answer.
#pragma once

#include "submit/errors.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace dtrain::batch {

/// When the queue is asked of a job that is followed: soon after something has changed, and at
/// doubling intervals while nothing does. Sites ban users whose programs ask all the time.
class PollPace {
 public:
  using Clock = std::chrono::steady_clock;

  bool is_due() const { return Clock::now() >= next_; }

  void asked() {
    next_ = Clock::now() + wait_;
    wait_ = std::min(wait_ * 2, k_longest);
  }

  void hurry() {
    next_ = Clock::now();
    wait_ = k_first;
  }

  void changed() {
    next_ = std::min(next_, Clock::now() + k_first / 2);
    wait_ = k_first;
  }

 private:
  static constexpr std::chrono::milliseconds k_first{1000};
  static constexpr std::chrono::milliseconds k_longest{30'000};
  std::chrono::milliseconds wait_ = k_first;
  Clock::time_point next_ = Clock::time_point::min();
};

/// For a command that follows a job: once the queue has answered, a controller that is away (being
/// restarted) is asked again for ten minutes, while jobs go on without it. Before its first answer
/// errors are thrown at once.
class RetryPolicy {
 public:
  /// `has_answered`: the queue has, before this.
  explicit RetryPolicy(bool has_answered) : has_answered_(has_answered) {}

  template <typename Ask>
  auto ask(const Ask& ask) {
    const auto give_up = std::chrono::steady_clock::now() + k_longest_absence;
    for (auto pause = k_first_pause;; pause = std::min(pause * 2, k_longest_pause)) {
      try {
        auto answer = ask();
        has_answered_ = true;
        return answer;
      } catch (const EngineError&) {
        if (!has_answered_ || std::chrono::steady_clock::now() > give_up) {
          throw;
        }
      }
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  static constexpr std::chrono::minutes k_longest_absence{10};
  static constexpr std::chrono::seconds k_first_pause{2};
  static constexpr std::chrono::seconds k_longest_pause{30};
  bool has_answered_;
};

} // namespace dtrain::batch
