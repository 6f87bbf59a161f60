// Times as text: RFC 3339 in UTC with nanoseconds, 30 characters, so that texts sort as times do.
#pragma once

#include "backends/job_status.h"

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

inline constexpr std::size_t k_time_text_size = 30; ///< "2026-11-21T03:24:00.123456789Z"

Time time_now();

/// Writes k_time_text_size characters, no end mark.
void write_time_text(Time time, char* out);

/// Empty for 0, "not yet".
std::string time_text(Time time);

/// 0 for an empty text; empty for a text not of this form.
std::optional<Time> parse_time_text(std::string_view text);

/// The end of such a text, "123456789Z".
std::optional<Time> parse_fraction_text(std::string_view text);

} // namespace dtrain
