// Says now and then, from a thread of its own, that a process lives that is busy computing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace trainer {

class Beat {
 public:
  /// Calls `say` every `seconds`, with `mutex` held, for as long as it lives.
  Beat(std::mutex& mutex, double seconds, std::function<void()> say)
      : mutex_(mutex), thread_([this, seconds, say = std::move(say)] {
          std::unique_lock lock(mutex_);
          const std::chrono::duration<double> period(seconds);
          while (!ending_.wait_for(lock, period, [this] { return ended_; })) {
            say();
          }
        }) {}
  ~Beat() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    ending_.notify_all();
    thread_.join();
  }
  Beat(const Beat&) = delete;
  Beat& operator=(const Beat&) = delete;

 private:
  std::mutex& mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_; // Last: it uses the others.
};

} // namespace trainer
