#include "submit/options/duration.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace dtrain {
namespace {

struct Unit {
  std::string_view suffix;
  std::int64_t milliseconds;
};

// From the longest to the shortest, so that formatting takes the longest unit that divides.
constexpr std::array<Unit, 5> k_units = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
constexpr double k_longest_ms = 10.0 * 366 * 86'400'000;

} // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) {
    return std::nullopt;
  }
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  for (const Unit& unit : k_units) {
    if (suffix == unit.suffix || (suffix.empty() && unit.suffix == "s")) {
      const double total = std::round(number * static_cast<double>(unit.milliseconds));
      return total <= k_longest_ms ? std::optional(std::chrono::milliseconds(std::llround(total)))
                                   : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string format_duration(std::chrono::milliseconds duration) {
  for (const Unit& unit : k_units) {
    if (duration.count() != 0 && duration.count() % unit.milliseconds == 0) {
      return fmt::format("{}{}", duration.count() / unit.milliseconds, unit.suffix);
    }
  }
  return "0s";
}

} // namespace dtrain
