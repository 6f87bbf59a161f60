// The text of a log file, as container runtimes write it (CRI), one line each:
//
//   2026-11-21T03:24:00.123456789Z stdout F text
//   time in UTC                    stream tag
//
// Tag F ends a line; P is a part of one whose rest follows on the same stream. Times never go back
// within a file. A file ends with a newline, but while it is written its end may lack one.
#pragma once

#include "backends/job_output.h"
#include "backends/job_status.h"

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// Appends the entry and its newline. `text` holds no newline.
void append_log_entry(std::string& out, Time time, bool is_stderr, bool complete,
                      std::string_view text);

/// Of an entry: everything but its text.
inline constexpr std::size_t k_log_entry_head = 40;

/// From one line of a file, without its newline; `instance` is left empty and `text` is a view into
/// `line`. Empty if the line is damaged.
std::optional<LogLine> parse_log_entry(std::string_view line);

/// The same for successive lines: most have the time of the previous one, or its second, which need
/// not be parsed again.
class LogEntryParser {
 public:
  std::optional<LogLine> parse(std::string_view line);

 private:
  std::string time_text_ = "\n"; ///< Of the previous entry; initially of none.
  Time time_ = 0;
};

} // namespace dtrain
