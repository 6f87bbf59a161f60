// Times and durations, as people read and type them.
#pragma once

#include "backends/job_status.h"

#include <chrono>
#include <string>
#include <string_view>

namespace dtrain {

/// An age: 45s, 2m5s, 10m, 3h12m, 30h, 5d. `duration` in nanoseconds.
std::string human_duration(Time duration);

/// "618s", the form in JSON.
std::string seconds_duration(Time duration);

/// "2021-02-22 17:26:29" in local time; empty for 0.
std::string local_time(Time time);

/// "2021-02-22T17:26:29.123456Z".
std::string utc_time(Time time);

/// "90s", "5m", "1h30m", "2d", "1.5h", or plain seconds. Throws UsageError that names `flag`.
std::chrono::nanoseconds parse_duration(std::string_view flag, const std::string& text);

/// A duration before `now`, or an RFC 3339 time ("2026-11-21T03:40:00Z", also with an offset or
/// fractions). Throws UsageError that names `flag`.
Time parse_since(std::string_view flag, const std::string& text, Time now);

} // namespace dtrain
