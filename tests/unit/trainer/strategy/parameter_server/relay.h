// What stands between a worker and a server in tests.
#pragma once

#include <atomic>
#include <string>

#include "tests/unit/thread.h"
#include "trainer/job/socket.h"

namespace trainer::test {

/// Between a worker and a server; can keep what either says from the other.
class Relay {
 public:
  explicit Relay(int port);
  std::string address() const;

  /// Once these return, what the worker, or the server, sends from here on is kept.
  void hold_worker(bool now) { set(holds_worker_, now); }
  /// Until the server ends: then it is lost with the connection.
  void hold_server() { set(holds_server_, true); }

 private:
  void set(std::atomic<bool>& flag, bool now);
  void run(const std::stop_token& stop);

  int to_;
  Fd listener_;
  std::atomic<bool> holds_worker_ = false;
  std::atomic<bool> holds_server_ = false;
  std::atomic<int> rounds_ = 0;
  unit::Thread thread_;
};

} // namespace trainer::test
