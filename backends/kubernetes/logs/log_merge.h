// Lines of many Pods, joined by time.
//
// Each source gives its lines in order. A line goes out when every other open source has given a
// later one or has been silent for k_longest_silence: a chatty backlog is merged in order, and a
// rank that says nothing holds nobody up. One that goes on giving older lines holds the others up
// for k_longest_hold, and is then not waited for until it has caught up. What is held is bounded:
// past k_most_held bytes, a line's record and its text's block included, the oldest line goes out
// anyway.
#pragma once

#include "backends/job_output.h"
#include "backends/job_status.h"

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain::kubernetes {

class LogMerge {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds k_longest_silence{50};
  static constexpr std::chrono::milliseconds k_longest_hold{1000};
  static constexpr std::size_t k_most_held = 32U << 20U;

  explicit LogMerge(LogSink sink) : sink_(std::move(sink)) {}

  /// A source's name is its instance's: "worker-0". Opening one again continues it.
  void open(const std::string& key, const std::string& instance, Clock::time_point now);

  /// No more lines from it.
  void close(const std::string& key);

  /// `complete`: false where more of the line follows, as in LogLine.
  void add(const std::string& key, Time time, std::string text, Clock::time_point now,
           bool complete = true);

  /// Gives the sink what may go out. False where the sink wants no more.
  bool flush(Clock::time_point now);

  /// Gives the sink everything.
  bool drain();

  /// Time until flush() could give more; a long time where nothing is held.
  std::chrono::milliseconds next_flush(Clock::time_point now) const;

 private:
  struct Line {
    Time time;
    std::string text;
    bool complete = true;
  };
  struct Source {
    std::string instance;
    std::deque<Line> lines;
    Clock::time_point last_heard;
    Time last_time = 0; ///< Of its lines: it gives no older one.
    /// Since when it has held back the others' lines.
    std::optional<Clock::time_point> holds_since;
    bool is_open = true;
  };

  static std::size_t size_of(const Line& line);
  bool is_waited_for(const Source& source, Clock::time_point now) const;
  bool give(bool everything, Clock::time_point now);

  LogSink sink_;
  std::map<std::string, Source> sources_;
  std::size_t held_ = 0;
  Time given_ = 0; ///< The latest time of a line that went out.
};

} // namespace dtrain::kubernetes
