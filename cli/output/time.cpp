#include "cli/output/time.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <ctime>
#include <optional>

namespace dtrain {
namespace {

constexpr Time k_minute_s = 60;
constexpr Time k_hour_s = 60 * k_minute_s;
constexpr Time k_day_s = 24 * k_hour_s;
constexpr Time k_year_s = 365 * k_day_s;

/// "3h12m", or "3h" where the smaller unit is zero.
std::string two_units(Time large, char large_unit, Time small, char small_unit) {
  return small == 0 ? fmt::format("{}{}", large, large_unit)
                    : fmt::format("{}{}{}{}", large, large_unit, small, small_unit);
}

std::optional<Time> unit_seconds(char unit) {
  switch (unit) {
  case 's':
    return 1;
  case 'm':
    return k_minute_s;
  case 'h':
    return k_hour_s;
  case 'd':
    return k_day_s;
  default:
    return std::nullopt;
  }
}

/// Nanoseconds, or nothing where `text` is not a duration of less than 100 years.
std::optional<Time> read_duration(std::string_view text) {
  constexpr double k_longest_s = 100.0 * k_year_s;
  if (text.empty()) {
    return std::nullopt;
  }
  double total_s = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc{} || number < 0 || *text.data() == '-') {
      return std::nullopt;
    }
    const bool plain_seconds = end == text.data() + text.size();
    const auto unit = plain_seconds ? std::optional<Time>(1) : unit_seconds(*end);
    if (!unit) {
      return std::nullopt;
    }
    total_s += number * static_cast<double>(*unit);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + (plain_seconds ? 0 : 1));
  }
  if (!(total_s < k_longest_s)) {
    return std::nullopt;
  }
  return static_cast<Time>(total_s * static_cast<double>(k_second));
}

/// Exactly `count` digits at the front of `text`, which they are taken from.
std::optional<int> take_digits(std::string_view& text, std::size_t count) {
  int value = 0;
  if (text.size() < count) {
    return std::nullopt;
  }
  for (const char digit : text.substr(0, count)) {
    if (digit < '0' || digit > '9') {
      return std::nullopt;
    }
    value = value * 10 + (digit - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

/// ".123456789": nanoseconds; more digits are ignored.
std::optional<Time> take_fraction(std::string_view& text) {
  if (!take(text, ".")) {
    return 0;
  }
  Time value = 0;
  Time unit = k_second / 10;
  const std::size_t before = text.size();
  while (const auto digit = take_digits(text, 1)) {
    value += *digit * unit;
    unit /= 10;
  }
  return text.size() == before ? std::nullopt : std::optional<Time>(value);
}

/// "Z" or "+02:00": seconds to the east.
std::optional<Time> take_offset(std::string_view& text) {
  if (take(text, "Zz")) {
    return 0;
  }
  const bool west = text.starts_with('-');
  if (!take(text, "+-")) {
    return std::nullopt;
  }
  const auto hours = take_digits(text, 2);
  const bool colon = take(text, ":");
  const auto minutes = take_digits(text, 2);
  if (!hours || !colon || !minutes) {
    return std::nullopt;
  }
  const Time seconds = *hours * k_hour_s + *minutes * k_minute_s;
  return west ? -seconds : seconds;
}

std::optional<Time> read_rfc3339(std::string_view text) {
  std::tm parts = {};
  const std::array<std::pair<std::size_t, std::string_view>, 6> fields = {
      {{4, "-"}, {2, "-"}, {2, "Tt "}, {2, ":"}, {2, ":"}, {2, ""}}};
  std::array<int, 6> values = {};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto value = take_digits(text, fields[i].first);
    if (!value || (!fields[i].second.empty() && !take(text, fields[i].second))) {
      return std::nullopt;
    }
    values[i] = *value;
  }
  const auto [year, month, day, hour, minute, second] = values;
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) {
    return std::nullopt;
  }
  parts.tm_year = year - 1900;
  parts.tm_mon = month - 1;
  parts.tm_mday = day;
  parts.tm_hour = hour;
  parts.tm_min = minute;
  parts.tm_sec = second;
  const auto fraction = take_fraction(text);
  const auto offset = take_offset(text);
  if (!fraction || !offset || !text.empty()) {
    return std::nullopt;
  }
  return (static_cast<Time>(timegm(&parts)) - *offset) * k_second + *fraction;
}

std::tm broken_down(Time time, bool utc) {
  const auto seconds = static_cast<std::time_t>(time / k_second);
  std::tm parts = {};
  utc ? gmtime_r(&seconds, &parts) : localtime_r(&seconds, &parts);
  return parts;
}

std::string date_and_time(const std::tm& parts, char between) {
  return fmt::format("{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, between, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

} // namespace

std::string human_duration(Time duration) {
  const Time seconds = duration <= 0 ? 0 : duration / k_second;
  const Time minutes = seconds / k_minute_s;
  const Time hours = seconds / k_hour_s;
  const Time days = seconds / k_day_s;
  const Time years = seconds / k_year_s;
  // A second unit only while it still tells something.
  if (minutes < 2) {
    return fmt::format("{}s", seconds);
  }
  if (minutes < 10) {
    return two_units(minutes, 'm', seconds % k_minute_s, 's');
  }
  if (hours < 3) {
    return fmt::format("{}m", minutes);
  }
  if (hours < 8) {
    return two_units(hours, 'h', minutes % 60, 'm');
  }
  if (days < 2) {
    return fmt::format("{}h", hours);
  }
  if (days < 8) {
    return two_units(days, 'd', hours % 24, 'h');
  }
  if (years < 2) {
    return fmt::format("{}d", days);
  }
  return two_units(years, 'y', days % 365, 'd');
}

std::string seconds_duration(Time duration) {
  return fmt::format("{}s", duration <= 0 ? 0 : duration / k_second);
}

std::string local_time(Time time) {
  return time == 0 ? "" : date_and_time(broken_down(time, false), ' ');
}

std::string utc_time(Time time) {
  constexpr Time k_microsecond = 1000;
  return fmt::format("{}.{:06}Z", date_and_time(broken_down(time, true), 'T'),
                     time % k_second / k_microsecond);
}

std::chrono::nanoseconds parse_duration(std::string_view flag, const std::string& text) {
  if (const auto duration = read_duration(text)) {
    return std::chrono::nanoseconds(*duration);
  }
  throw UsageError(
      fmt::format("{}: '{}' is not a duration; write 90s, 5m, 1h30m or 2d", flag, printable(text)));
}

Time parse_since(std::string_view flag, const std::string& text, Time now) {
  if (const auto duration = read_duration(text)) {
    return now - *duration;
  }
  if (const auto time = read_rfc3339(text)) {
    return *time;
  }
  throw UsageError(fmt::format("{}: '{}' is neither a duration (5m, 1h30m) nor a time "
                               "(2026-01-31T18:00:00Z)",
                               flag, printable(text)));
}

} // namespace dtrain
