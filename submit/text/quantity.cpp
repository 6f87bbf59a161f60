#include "submit/text/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace dtrain {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 16> k_suffixes = {{{"", 1},
                                                                             {"n", 1e-9},
                                                                             {"u", 1e-6},
                                                                             {"m", 1e-3},
                                                                             {"k", 1e3},
                                                                             {"M", 1e6},
                                                                             {"G", 1e9},
                                                                             {"T", 1e12},
                                                                             {"P", 1e15},
                                                                             {"E", 1e18},
                                                                             {"Ki", 0x1p10},
                                                                             {"Mi", 0x1p20},
                                                                             {"Gi", 0x1p30},
                                                                             {"Ti", 0x1p40},
                                                                             {"Pi", 0x1p50},
                                                                             {"Ei", 0x1p60}}};

} // namespace

bool is_quantity(std::string_view text) {
  static constexpr std::array<std::string_view, 15> k_suffixes = {
      "", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "u"};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const bool some = number.find_first_of("123456789") != std::string_view::npos;
  return some && std::count(number.begin(), number.end(), '.') <= 1 && number.front() != '.' &&
         number.back() != '.' &&
         std::find(k_suffixes.begin(), k_suffixes.end(), text.substr(digits)) != k_suffixes.end();
}

std::optional<double> quantity_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) {
    return std::nullopt;
  }
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [suffix, factor] : k_suffixes) {
    if (rest == suffix) {
      return number * factor;
    }
  }
  return std::nullopt;
}

} // namespace dtrain
