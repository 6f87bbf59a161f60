// Texts with a NUL after each, as /proc and a job's folder keep variables.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

inline std::vector<std::string> split_at_nul(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find('\0'), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

} // namespace dtrain
