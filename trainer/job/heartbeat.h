// Heartbeats that show peers that a process is alive, also from a thread while it computes.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace trainer {

/// The interval of heartbeats for peers that give up after `peer_timeout` seconds: a quarter of
/// that, at most one second.
inline double heartbeat_seconds(double peer_timeout) { return std::min(1.0, peer_timeout / 4); }

class Heartbeat {
 public:
  /// Calls `say` every `seconds`, with `mutex` held, for as long as it lives.
  Heartbeat(std::mutex& mutex, double seconds, std::function<void()> say)
      : mutex_(mutex), thread_([this, seconds, say = std::move(say)] {
          std::unique_lock lock(mutex_);
          const std::chrono::duration<double> period(seconds);
          while (!ending_.wait_for(lock, period, [this] { return ended_; })) {
            say();
          }
        }) {}
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    ending_.notify_all();
    thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  std::mutex& mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_; // Last: it uses the others.
};

} // namespace trainer
