#include "backends/support/logs/time_text.h"

#include <array>
#include <chrono>
#include <ctime>

namespace dtrain {

namespace {

constexpr Time k_seconds_a_day = 86'400;
constexpr std::chrono::year k_first_year{1970};
constexpr std::chrono::year k_last_year{2261}; ///< The last whole one that a Time holds.
constexpr std::string_view k_shape = "dddd-dd-ddTdd:dd:dd.dddddddddZ";
static_assert(k_shape.size() == k_time_text_size);

void write_digits(std::int64_t value, int count, char* out) {
  for (int i = count - 1; i >= 0; --i) {
    out[i] = static_cast<char>('0' + value % 10);
    value /= 10;
  }
}

std::int64_t read_digits(std::string_view text, std::size_t at, std::size_t count) {
  std::int64_t value = 0;
  for (const char c : text.substr(at, count)) {
    value = value * 10 + (c - '0');
  }
  return value;
}

} // namespace

Time time_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * k_second + now.tv_nsec;
}

void write_time_text(Time time, char* out) {
  const Time seconds = time / k_second;
  const std::chrono::sys_days day{std::chrono::days{seconds / k_seconds_a_day}};
  const std::chrono::year_month_day date{day};
  const Time of_day = seconds % k_seconds_a_day;
  k_shape.copy(out, k_shape.size());
  write_digits(static_cast<int>(date.year()), 4, out);
  write_digits(static_cast<unsigned>(date.month()), 2, out + 5);
  write_digits(static_cast<unsigned>(date.day()), 2, out + 8);
  write_digits(of_day / 3600, 2, out + 11);
  write_digits(of_day / 60 % 60, 2, out + 14);
  write_digits(of_day % 60, 2, out + 17);
  write_digits(time % k_second, 9, out + 20);
}

std::string time_text(Time time) {
  if (time <= 0) {
    return {};
  }
  std::string text(k_time_text_size, ' ');
  write_time_text(time, text.data());
  return text;
}

std::optional<Time> parse_time_text(std::string_view text) {
  if (text.empty()) {
    return 0;
  }
  if (text.size() != k_shape.size()) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (k_shape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != k_shape[i]) {
      return std::nullopt;
    }
  }
  const std::chrono::year_month_day date{
      std::chrono::year{static_cast<int>(read_digits(text, 0, 4))},
      std::chrono::month{static_cast<unsigned>(read_digits(text, 5, 2))},
      std::chrono::day{static_cast<unsigned>(read_digits(text, 8, 2))}};
  const auto hours = read_digits(text, 11, 2);
  const auto minutes = read_digits(text, 14, 2);
  const auto seconds = read_digits(text, 17, 2);
  if (!date.ok() || date.year() < k_first_year || date.year() > k_last_year || hours > 23 ||
      minutes > 59 || seconds > 59) {
    return std::nullopt;
  }
  const Time days = std::chrono::sys_days{date}.time_since_epoch().count();
  return ((days * 24 + hours) * 3600 + minutes * 60 + seconds) * k_second +
         read_digits(text, 20, 9);
}

std::optional<Time> parse_fraction_text(std::string_view text) {
  constexpr std::size_t k_digits = 9;
  if (text.size() != k_digits + 1 || text.back() != 'Z') {
    return std::nullopt;
  }
  Time value = 0;
  for (const char c : text.substr(0, k_digits)) {
    if (c < '0' || c > '9') {
      return std::nullopt;
    }
    value = value * 10 + (c - '0');
  }
  return value;
}

} // namespace dtrain
