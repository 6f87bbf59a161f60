// Slurm's information about jobs: the output of squeue, one line each, in a format that all
// versions since 14 have; and for jobs that it has forgotten, its accounting, or the file in which
// it notes ended jobs, if it keeps one.
#pragma once

#include "backends/batch/queued_job.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::slurm {

/// For `squeue --noheader --format=`, with SLURM_TIME_FORMAT=%s. The field that may contain the
/// separator is last.
inline constexpr const char* k_queue_format = "%i|%T|%r|%V|%S|%e|%N|%P|%k";

/// For `sacct --parsable2 --format=`: the same fields in the same order, except that the end of the
/// batch script replaces the reason, which not all versions know.
inline constexpr const char* k_account_fields =
    "JobID,State,ExitCode,Submit,Start,End,NodeList,Partition,Comment";

/// Lines that are none are left out. "CANCELLED by 1000" is CANCELLED.
std::vector<batch::QueuedJob> read_queue(std::string_view text);

/// The meaning of one of Slurm's states.
struct State {
  std::string_view name;
  Phase phase;
  std::string_view why = ""; ///< For people, for an end that is not a rank's failure.
};

/// The state of that name; one that no table has is RUNNING's, as that ends nothing.
State state_of(std::string_view name);

/// A pending job's reason in words: "waits for nodes to become free (Resources)".
std::string reason_text(std::string_view reason);

} // namespace dtrain::slurm
