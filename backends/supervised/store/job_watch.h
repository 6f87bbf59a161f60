// Waits for a job's record or logs to change or its processes to end.
//
// The kernel takes a moment of its own, up to 16 ms, to close a watch for good: it is asked for one
// only where the job outlasts the first look. Before that the job is looked at every other
// millisecond.
#pragma once

#include "backends/supervised/store/job_store.h"

#include <poll.h>

#include <chrono>
#include <utility>
#include <vector>

namespace dtrain {

class JobWatch {
 public:
  /// `folder` must outlive it.
  JobWatch(const JobFolder& folder, bool with_logs);

  /// Notices the end of these too. What is written elsewhere is looked for every k_fallback_ms.
  void follow(const JobOwner& owner);

  /// Returns where something may have changed since it was called last; the caller looks then.
  void wait() { wait_any({this}); }

  /// The same for several; take_changed() tells which.
  static void wait_any(const std::vector<JobWatch*>& watches);

  /// Whether something may have changed since the last call.
  bool take_changed() { return std::exchange(changed_, false); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds k_first_look{40};
  static constexpr int k_first_look_ms = 2;
  static constexpr int k_fallback_ms = 100; ///< If the kernel has no more watches.

  static constexpr std::size_t k_descriptors = 3;

  void start();
  bool is_first_look() const { return !started_ && Clock::now() < first_look_ends_; }
  int timeout() const;
  void take(const pollfd* polled);

  const JobFolder& folder_;
  bool with_logs_;
  Clock::time_point first_look_ends_;
  bool started_ = false;
  bool changed_ = true;
  bool is_elsewhere_ = false;
  JobOwner owner_;
  Fd inotify_;
  Fd guard_;
  Fd supervisor_;
};

} // namespace dtrain
