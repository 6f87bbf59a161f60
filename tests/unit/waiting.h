// Time in tests: time-outs that a busy machine meets, and waiting for what is sure to come.
#pragma once

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DTRAIN_TESTS_ARE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DTRAIN_TESTS_ARE_SANITIZED 1
#endif
#endif

namespace unit {

/// Of a case that waits for seconds and computes nothing meanwhile: many of them run beside those
/// that compute (tests/CMakeLists.txt).
inline doctest::test_suite waits() { return "waits"; }

/// How much slower than a release this program may be.
#ifdef DTRAIN_TESTS_ARE_SANITIZED
inline constexpr int k_slowness = 8;
#else
inline constexpr int k_slowness = 1;
#endif

/// For a time-out of `seconds` in a program that has a machine to itself: one that the living keep
/// on a busy machine too. Shorter ones are for tests in which nobody has to come in time.
constexpr double time_out(double seconds) { return std::max(4.0, k_slowness * seconds); }

/// Seconds that a test waits for what is sure to come: only one that fails waits so long.
inline constexpr double k_patience = 20.0 * k_slowness;

/// Returns once `condition` holds. Throws where it does not in `k_patience` seconds, so that a
/// thread whose partner has failed ends as well.
template <typename Condition>
void wait_until(const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(k_patience);
  for (auto pause = std::chrono::milliseconds(1);;
       pause = std::min(2 * pause, std::chrono::milliseconds(16))) {
    const bool is_last_look = Clock::now() >= deadline;
    if (condition()) {
      return;
    }
    if (is_last_look) {
      throw std::runtime_error("what the test waits for has not come");
    }
    std::this_thread::sleep_for(pause);
  }
}

} // namespace unit
