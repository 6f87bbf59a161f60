// Jobs as they stand: what their records say, unless those who keep the record are gone.
#pragma once

#include "backends/supervised/store/job_store.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrain {

class JobViewer {
 public:
  explicit JobViewer(const JobStore& store) : store_(store) {}

  std::vector<JobSummary> list(std::string_view namespace_name) const;

  /// Empty where the folder has been removed.
  std::optional<JobRecord> record(const JobFolder& folder, const JobRef& job) const;

  /// True if the job's processes are on this machine, and its supervisor and guard are gone.
  static bool is_abandoned(const JobOwner& owner);

 private:
  const JobStore& store_;
};

/// False of a job that has ended or is suspended: it has no process.
constexpr bool needs_supervisor(Phase phase) { return !is_final(phase) && !is_held_back(phase); }

/// False of a job that runs where only its own machine can see and end it.
inline bool is_within_reach(const JobOwner& owner) {
  return whereabouts(owner.machine) != Whereabouts::elsewhere;
}

/// "on node1": for a job elsewhere, for people.
std::string place_text(const JobOwner& owner);

} // namespace dtrain
