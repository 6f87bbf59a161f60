// Letters of ASCII, as protocols and file names have them.
#pragma once

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>

namespace dtrain {

inline std::string lower_case(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  std::transform(text.begin(), text.end(), std::back_inserter(lower),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

} // namespace dtrain
