// The record of a job under our supervisor, as JSON that a person can read.
//
// The keys that `list` needs come first, so that it can read thousands of records: it stops at
// "instances".
#pragma once

#include "backends/job_status.h"
#include "backends/support/os/machine.h"
#include "backends/support/os/process.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// The job's supervisor, to tell a running job from one whose supervisor is gone.
struct JobOwner {
  Machine machine; ///< The machine of its processes.
  ProcessId guard;
  ProcessId supervisor;
  int grace_period_ms = 0;
  std::string cgroup; ///< Folder of its control group; empty: the machine gave none (cgroup.h).

  bool operator==(const JobOwner&) const = default;
};

struct JobRecord {
  JobStatus status;
  JobOwner owner;
};

struct JobRecordHead {
  JobSummary summary;
  std::unique_ptr<JobOwner> owner; ///< Null for a job that has ended, of which nobody needs it.
  std::size_t bytes = 0;           ///< Bytes of the text that were needed.
};

/// A failure of the job itself, not of one of its ranks.
FailureCause job_failure(std::string node, std::string message);

std::string write_job_record(const JobRecord& record);

/// Empty where the text is no such record (a crash of the machine may leave an empty file).
std::optional<JobRecord> read_job_record(std::string_view text);

/// Reads the keys before "instances"; `text` may end anywhere after those.
std::optional<JobRecordHead> read_job_record_head(std::string_view text);

} // namespace dtrain
