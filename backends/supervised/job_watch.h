// Waits, without polling, for a job's record or logs to change or its processes to end.
#pragma once

#include "backends/supervised/job_store.h"

namespace dtrain {

class JobWatch {
 public:
  /// Changes from here on are noticed, so look at the job after this. Where the kernel has no more
  /// watches to give, wait() returns every k_fallback_ms instead.
  JobWatch(const JobFolder& folder, bool with_logs);

  /// Notices the end of these too. What is written elsewhere is looked for every k_fallback_ms.
  void follow(const JobOwner& owner);

  void wait();

 private:
  static constexpr int k_fallback_ms = 100;

  Fd inotify_;
  bool polls_;
  Fd guard_;
  Fd supervisor_;
};

} // namespace dtrain
