// Jobs as they stand: what their records say, unless those who keep the record are gone.
#pragma once

#include "backends/supervised/job_store.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrain {

class JobViewer {
 public:
  explicit JobViewer(const JobStore& store);

  std::vector<JobSummary> list(std::string_view namespace_name) const;

  /// Empty where the folder has been removed.
  std::optional<JobRecord> record(const JobFolder& folder, const JobRef& job) const;

  /// True where the job's processes are of this machine, and none that looks after it is left.
  bool is_abandoned(const JobOwner& owner) const;

  /// True where the job's processes are, or were, of this machine.
  bool is_ours(const JobOwner& owner) const { return owner.host == host_; }
  bool is_of_this_boot(const JobOwner& owner) const { return owner.boot == boot_; }

 private:
  const JobStore& store_;
  std::string host_;
  std::string boot_;
};

/// False of a job that has ended or is suspended: it has no process.
constexpr bool needs_supervisor(Phase phase) { return !is_final(phase) && phase != Phase::queuing; }

/// This machine's name.
std::string host_name();

} // namespace dtrain
