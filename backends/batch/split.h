// Text in parts, as commands print it.
#pragma once

#include <string_view>
#include <vector>

namespace dtrain::batch {

/// "a||b" in three; an empty text is one empty part.
inline std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto part = text.substr(0, text.find(mark));
    parts.push_back(part);
    if (part.size() == text.size()) {
      return parts;
    }
    text.remove_prefix(part.size() + 1);
  }
}

} // namespace dtrain::batch
