// Asking a controller that may be away for a while.
#pragma once

#include "backends/backend.h"
#include "submit/errors.h"

#include <chrono>
#include <thread>

namespace dtrain::slurm {

inline constexpr std::chrono::milliseconds k_longest_wait{2000}; ///< Between two questions.

/// Of who follows a job: once Slurm has answered, its controller may be away for a while, as when
/// it is started anew; jobs go on without it.
class Patience {
 public:
  /// `has_answered`: what was asked before this.
  explicit Patience(bool has_answered) : has_answered_(has_answered) {}

  template <typename Ask>
  JobStatus ask(const Ask& ask) {
    const auto give_up = std::chrono::steady_clock::now() + k_longest_absence;
    while (true) {
      try {
        JobStatus status = ask();
        has_answered_ = true;
        return status;
      } catch (const EngineError&) {
        if (!has_answered_ || std::chrono::steady_clock::now() > give_up) {
          throw;
        }
      }
      std::this_thread::sleep_for(k_longest_wait);
    }
  }

 private:
  static constexpr std::chrono::minutes k_longest_absence{10};
  bool has_answered_;
};

} // namespace dtrain::slurm
