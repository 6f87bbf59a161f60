// The output of ranks: the lines of their logs, and their files.
#pragma once

#include "backends/job_status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace dtrain {

struct LogQuery {
  std::string instance;   ///< Empty: all.
  bool follow = false;    ///< Waits for the job to start and ends with it.
  std::int64_t tail = -1; ///< Last lines of each instance; -1: all.
  Time since = 0;
  bool previous = false;      ///< The run before the last restart.
  std::string container = {}; ///< In each instance; empty: the program's.

  /// Told, while following and at each change, why nothing runs yet: an image that cannot be
  /// pulled, no room in the cluster. May be empty.
  std::function<void(const std::string&)> on_wait = {};
};

struct LogLine {
  Time time = 0;
  std::string_view instance; ///< "worker-0"
  bool is_stderr = false;
  bool complete = true;  ///< False: no newline yet, more of the line follows.
  std::string_view text; ///< Without its newline.
};

/// A sink that throws ends the reading.
using ByteSink = std::function<void(std::string_view)>;

/// Return false to stop.
using LogSink = std::function<bool(const LogLine&)>;

} // namespace dtrain
