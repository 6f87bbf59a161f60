// Output for people. Only rank 0 prints; lines go to stdout, the progress bar to stderr, and the
// bar only if stderr is a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/monitor/metrics.h"

namespace trainer {

/// One line of progress, at most 89 columns for usual numbers, so that a job's logs with their
/// prefixes stay below 100. Lost time (waiting for input or other ranks) is named if it is much;
/// all of it is in --csv and TensorBoard.
std::string step_text(const LogLine& line, double epochs);

class Console {
 public:
  /// `quiet`: another rank does the printing.
  Console(bool quiet, bool progress_bar);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// The choices made, once at start: what and how it was settled.
  void choices(const std::vector<std::pair<std::string, std::string>>& choices);
  void line(const LogLine& line, double epochs);
  void say(const std::string& text);

  /// Redraws the bar at most some times a second.
  void progress(std::int64_t step, std::int64_t steps, const char* what = "step");

 private:
  void clear_bar();

  bool quiet_;
  bool bar_;
  bool drawn_ = false;
  double drawn_at_ = 0;
};

/// 151,234
std::string with_commas(double number);

} // namespace trainer
