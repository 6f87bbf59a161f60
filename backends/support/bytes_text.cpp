#include "backends/support/bytes_text.h"

#include <fmt/format.h>

#include <array>

namespace dtrain {

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 4> k_units = {"kB", "MB", "GB", "TB"};
  constexpr double k_step = 1000;
  if (bytes < static_cast<std::int64_t>(k_step)) {
    return fmt::format("{} bytes", bytes);
  }
  double value = static_cast<double>(bytes) / k_step;
  std::size_t unit = 0;
  for (; value >= k_step && unit + 1 < k_units.size(); ++unit) {
    value /= k_step;
  }
  return fmt::format("{:.1f} {}", value, k_units.at(unit));
}

} // namespace dtrain
