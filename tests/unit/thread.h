// A thread of a test: what it throws fails the test that joins it, and does not end the program.
#pragma once

#include <exception>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace unit {

/// Runs `body`, a callable without arguments or with a std::stop_token, which one that goes on for
/// ever has to look at. A test ends it by join(), stop() or thrown(). Where none of them is called,
/// as where the test fails before, it is told to stop and waited for, and what it threw is dropped.
class Thread {
 public:
  template <typename Body>
  explicit Thread(Body body)
      : thread_([this, body = std::move(body)](const std::stop_token& stop) mutable {
          try {
            if constexpr (std::is_invocable_v<Body&, const std::stop_token&>) {
              body(stop);
            } else {
              body();
            }
          } catch (...) {
            thrown_ = std::current_exception();
          }
        }) {}
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  /// Waits for its end. Throws what it threw.
  void join() {
    if (thread_.joinable()) {
      thread_.join();
    }
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
  }

  /// The same, of one that goes on until it is told.
  void stop() {
    thread_.request_stop();
    join();
  }

  /// Waits for its end; the message of what it threw, "" if nothing. An assertion's is thrown on.
  std::string thrown() {
    try {
      join();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::exception_ptr thrown_;
  std::jthread thread_;
};

} // namespace unit
