// Durations as people type them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// Parses "500ms", "10s", "5m", "1h", "2d", or a bare number of seconds, fractions included.
/// Returns std::nullopt for anything else, and for negative values or more than 10 years.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// The shortest of the above that is exact: "1500ms", "10s", "5m".
std::string format_duration(std::chrono::milliseconds duration);

} // namespace dtrain
