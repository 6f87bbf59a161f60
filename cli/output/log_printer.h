// Log lines of many instances on one screen or in one file, each with its instance's name.
//
// A line whose end has not come yet (a progress bar, a prompt) never mixes with another's: on a
// terminal at most one of them stands at the bottom and moves out of the way of whole lines;
// in a file or pipe it waits for its end, unless nobody else's could come between. A line of more
// than 1 MiB is broken there, so that memory is bounded whatever is printed.
#pragma once

#include "backends/job_output.h"
#include "backends/job_status.h"
#include "cli/output/stream.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

class LogPrinter {
 public:
  struct Format {
    bool prefix = true;
    bool timestamps = false;
    bool flush_lines = false; ///< Following: a line is written as it comes.
  };

  /// `instances` give the prefixes' width and colours.
  LogPrinter(Stream& out, const std::vector<std::string>& instances, Format format);

  void print(const LogLine& line);

  /// Writes the lines whose end never came.
  void finish();

 private:
  struct Open {
    Time time = 0;
    std::string text;
  };

  std::string instance_prefix(std::string_view instance, Style style) const;
  void write_prefix(std::string_view instance, Time time);
  void print_part(const LogLine& line);
  void whole_line(std::string_view instance, Time time, std::string_view text);
  void hide_live();
  void show_live();

  Stream& out_;
  Format format_;
  std::size_t width_ = 0;
  std::map<std::string, std::string, std::less<>> prefixes_;
  std::map<std::string, Open, std::less<>> open_;
  bool streams_parts_;   ///< A single instance, into a file or pipe.
  bool in_line_ = false; ///< A line has begun whose end is still to come.
  std::string live_;     ///< Whose unfinished line is on the screen; empty: nobody's.
};

} // namespace dtrain
