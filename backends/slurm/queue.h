// What Slurm says of its jobs: the output of squeue, one line each, in a format that all versions
// have had since 14; and of those that it has forgotten, what its accounting says, or the file that
// it notes ended jobs in, where it keeps one.
#pragma once

#include "backends/batch/queued_job.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::slurm {

/// For `squeue --noheader --format=`, with SLURM_TIME_FORMAT=%s. What may hold the mark is last.
inline constexpr const char* k_queue_format = "%i|%T|%r|%V|%S|%e|%N|%P|%k";

/// For `sacct --parsable2 --format=`, which gives the same in the same order, but how the batch
/// script ended in place of the reason, which not all versions know.
inline constexpr const char* k_account_fields =
    "JobID,State,ExitCode,Submit,Start,End,NodeList,Partition,Comment";

/// Lines that are none are left out. "CANCELLED by 1000" is CANCELLED.
std::vector<batch::QueuedJob> read_queue(std::string_view text);

/// What a state of Slurm's comes to.
struct State {
  std::string_view name;
  Phase phase;
  std::string_view why = ""; ///< For people, of one that is no failure of a rank's.
};

/// The state of that name; one that no table has is RUNNING's, as that ends nothing.
State state_of(std::string_view name);

/// A pending job's reason in words: "waits for nodes to become free (Resources)".
std::string reason_text(std::string_view reason);

} // namespace dtrain::slurm
