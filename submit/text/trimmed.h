#pragma once

#include <algorithm>
#include <string_view>

namespace dtrain {

/// `text` without spaces, tabs and line ends around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view k_blanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(k_blanks), text.size()));
  return text.substr(0, text.find_last_not_of(k_blanks) + 1);
}

} // namespace dtrain
