// JSON files that come from outside: what must be checked before they are followed.
#pragma once

#include <cstddef>
#include <istream>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

namespace trainer {

/// How deep lists and objects may lie in each other: copying, comparing and printing them recurse,
/// and a file of a million brackets would end the process.
constexpr std::size_t k_deepest_json = 64;

/// Parses `text`. Discarded where it is no JSON, or deeper than that.
inline nlohmann::json parse_shallow_json(std::string_view text) {
  std::size_t depth = 0;
  bool is_string = false;
  for (std::size_t at = 0; at < text.size() && depth <= k_deepest_json; ++at) {
    const char c = text[at];
    if (is_string) {
      at += c == '\\' ? 1 : 0;
      is_string = c != '"';
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    } else {
      is_string = c == '"';
    }
  }
  return depth > k_deepest_json ? nlohmann::json(nlohmann::json::value_t::discarded)
                                : nlohmann::json::parse(text, nullptr, false);
}

/// Of all that `file` has left; nothing where it cannot be read, as a folder cannot.
inline nlohmann::json parse_shallow_json(std::istream& file) {
  std::ostringstream text;
  text << file.rdbuf();
  return parse_shallow_json(text.str());
}

/// Whether a file of a folder may have that name: it leads nowhere else.
inline bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos;
}

} // namespace trainer
