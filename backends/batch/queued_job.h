// The queue's information about jobs, as read by its own folder.
#pragma once

#include "backends/job_status.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::batch {

struct QueuedJob {
  std::string id;               ///< "123"; of an array's tasks "123_7", "123_[8-99%5]".
  std::string state;            ///< In the queue's own words: "PENDING".
  std::string reason;           ///< In the queue's own words: "Resources"; empty: none.
  Phase phase = Phase::running; ///< The phase that the state means.
  std::string why; ///< Explains the state to people: "ran into its time limit"; may be empty.
  std::string reason_text;   ///< Explains the reason: "waits for nodes to become free (Resources)".
  bool is_held = false;      ///< It waits until somebody releases it.
  bool is_over_time = false; ///< It is being ended at its time limit; `why` says so already.
  bool is_unstarted = false; ///< It ended like a job whose script could not be started.
  Time submitted = 0;
  Time starts = 0;   ///< Started, or is expected to; 0: not known.
  Time ends = 0;     ///< Ended, or is to by its time limit.
  std::string nodes; ///< "node[1-3]"
  std::string partition;
  std::string comment;
  std::optional<int> exit_code; ///< The batch script's; accounting alone says it.
  std::optional<int> signal; ///< The signal that ended the batch script, instead of an exit code.
};

/// "0-9:3,20" and "0-99%5" as numbers in order, each once; nothing where the text is no such list.
std::vector<int> read_indexes(std::string_view text);

/// Jobs by their ids. Those of an array that are told of in one line are found one by one.
class Queue {
 public:
  explicit Queue(std::vector<QueuedJob> jobs);

  /// Null if the queue does not know the job.
  const QueuedJob* find(const std::string& id) const;

  const std::map<std::string, QueuedJob, std::less<>>& jobs() const { return jobs_; }

 private:
  std::map<std::string, QueuedJob, std::less<>> jobs_;
};

} // namespace dtrain::batch
