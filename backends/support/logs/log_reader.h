// Reads log files (log_format.h), one or a whole gang's in time order.
#pragma once

#include "backends/job_output.h"
#include "backends/job_status.h"
#include "backends/support/logs/log_format.h"
#include "backends/support/os/fd.h"

#include <deque>
#include <limits>
#include <string>
#include <vector>

namespace dtrain {

/// The file of one instance, which may still grow.
class LogReader {
 public:
  LogReader(Fd file, std::string instance);

  /// Leaves out all but the last `lines` lines there are now. A line without its end comes along.
  void skip_to_tail(std::int64_t lines);

  /// The next entry, valid until next(); null where the file has no more now. Damaged ones are left
  /// out.
  const LogLine* peek();
  void next();

 private:
  bool fill();
  off_t begin() const;

  Fd file_;
  std::string instance_;
  LogEntryParser parser_;
  std::vector<char> buffer_; ///< Grows to an entry and a block, whatever the file holds.
  std::size_t at_ = 0;       ///< After the entry returned by peek() …
  std::size_t end_ = 0;      ///< … and the end of what was read.
  bool skips_ = false;       ///< The next bytes are the rest of something that is not an entry.
  std::string note_;         ///< A note that the oldest lines are gone, not given yet.
  LogLine line_;
  bool has_line_ = false;
};

/// Gives the entries of all readers in time order (k-way merge: O(log k) an entry), those before
/// `since` left out, up to the time `horizon`. False where the sink wants no more.
/// They must stay where they are: entries view into them. `held`: set where entries beyond the
/// horizon are left.
bool merge_logs(std::deque<LogReader>& readers, Time since, Time horizon, const LogSink& sink,
                bool& held);

inline constexpr Time k_no_horizon = std::numeric_limits<Time>::max();

} // namespace dtrain
