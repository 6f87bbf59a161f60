// What Slurm says of its jobs: the output of squeue, one line each, in a format that all versions
// have had since 14; and of those that it has forgotten, what its accounting says, where it keeps
// one.
#pragma once

#include "backends/backend.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::slurm {

/// For `squeue --noheader --format=`, with SLURM_TIME_FORMAT=%s. What may hold the mark is last.
inline constexpr const char* k_queue_format = "%i|%T|%r|%V|%S|%e|%N|%P|%k";

/// For `sacct --parsable2 --format=`, which gives the same in the same order, but how the batch
/// script ended in place of the reason, which not all versions know.
inline constexpr const char* k_account_fields =
    "JobIDRaw,State,ExitCode,Submit,Start,End,NodeList,Partition,Comment";

struct QueuedJob {
  std::string id;     ///< "123"
  std::string state;  ///< "PENDING"
  std::string reason; ///< "Resources"; empty: none.
  Time submitted = 0;
  Time starts = 0;   ///< Started, or is expected to; 0: not known.
  Time ends = 0;     ///< Ended, or is to by its time limit.
  std::string nodes; ///< "node[1-3]"
  std::string partition;
  std::string comment;
  std::optional<int> exit_code; ///< The batch script's; accounting alone says it.
  std::optional<int> signal;    ///< That ended the batch script, in place of its exit code.
};

/// Lines that are none are left out. "CANCELLED by 1000" is CANCELLED.
std::vector<QueuedJob> read_queue(std::string_view text);

/// What a state of Slurm's comes to. Empty of one that is not known.
struct State {
  std::string_view name;
  Phase phase;
  std::string_view why = ""; ///< For people, of one that is no failure of a rank's.
};

/// The state of that name; one that no table has is RUNNING's, as that ends nothing.
State state_of(std::string_view name);

/// A pending job's reason in words: "waits for free nodes (Resources)".
std::string reason_text(const QueuedJob& job);

} // namespace dtrain::slurm
