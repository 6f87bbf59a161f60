// What Slurm says of its jobs: the output of squeue, one line each, in a format that all versions
// have had since 14; and of those that it has forgotten, what its accounting says, or the file that
// it notes ended jobs in, where it keeps one.
#pragma once

#include "backends/backend.h"

#include <map>
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
    "JobID,State,ExitCode,Submit,Start,End,NodeList,Partition,Comment";

struct QueuedJob {
  std::string id;     ///< "123"; of an array's tasks "123_7", "123_[8-99%5]".
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

/// Jobs by their ids. Those of an array that Slurm tells of in one line are found one by one.
class Queue {
 public:
  explicit Queue(std::string_view text);

  /// Null: it does not know the job.
  const QueuedJob* find(const std::string& id) const;

  const std::map<std::string, QueuedJob, std::less<>>& jobs() const { return jobs_; }

 private:
  std::map<std::string, QueuedJob, std::less<>> jobs_;
};

/// "0-9:3,20" and "0-99%5" as numbers in order, each once; nothing where the text is no such list.
std::vector<int> read_indexes(std::string_view text);

/// What a state of Slurm's comes to. Empty of one that is not known.
struct State {
  std::string_view name;
  Phase phase;
  std::string_view why = ""; ///< For people, of one that is no failure of a rank's.
};

/// The state of that name; one that no table has is RUNNING's, as that ends nothing.
State state_of(std::string_view name);

/// True of a pending job that somebody has to let go on: JobHeldUser, JobHoldMaxRequeue, "job
/// requeued in held state".
bool is_held(const QueuedJob& job);

/// A pending job's reason in words: "waits for free nodes (Resources)".
std::string reason_text(const QueuedJob& job);

} // namespace dtrain::slurm
