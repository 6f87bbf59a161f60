#include "backends/support/code/ignore.h"

#include <fnmatch.h>

#include <algorithm>

namespace dtrain {

namespace {

constexpr std::string_view k_any = "**";

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) {
      parts.emplace_back(path.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return parts;
}

/// Without trailing blanks, except those after a backslash.
std::string_view trimmed_line(std::string_view line) {
  while (line.ends_with('\r') || line.ends_with('\t') ||
         (line.ends_with(' ') && !line.ends_with("\\ "))) {
    line.remove_suffix(1);
  }
  return line;
}

/// Row by row, which of the first patterns match the first parts: quadratic for any pattern.
bool matches(const std::vector<std::string>& patterns, const std::vector<std::string>& parts) {
  std::vector<char> row(parts.size() + 1, 0);
  row[0] = 1;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    std::vector<char> next(parts.size() + 1, 0);
    if (patterns[i] == k_any) {
      const bool is_last = i + 1 == patterns.size();
      char seen = 0;
      for (std::size_t k = 0; k <= parts.size(); ++k) {
        // At the end it stands for what is inside, at least one part.
        next[k] = is_last ? seen : static_cast<char>(seen | row[k]);
        seen = static_cast<char>(seen | row[k]);
      }
    } else {
      for (std::size_t k = 0; k < parts.size(); ++k) {
        next[k + 1] = static_cast<char>(row[k] != 0 &&
                                        fnmatch(patterns[i].c_str(), parts[k].c_str(), 0) == 0);
      }
    }
    row = std::move(next);
  }
  return row.back() != 0;
}

} // namespace

void IgnoreRules::add(std::string_view folder, std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = trimmed_line(text.substr(begin, end - begin));
    begin = end + 1;
    Rule rule;
    rule.folder = folder;
    if (line.empty() || line.front() == '#') {
      continue;
    }
    if (line.front() == '!') {
      rule.takes_back = true;
      line.remove_prefix(1);
    }
    if (line.ends_with('/')) {
      rule.folders_only = true;
      line.remove_suffix(1);
    }
    const bool is_tied = line.find('/') != std::string_view::npos;
    rule.parts = split(line);
    if (rule.parts.empty()) {
      continue;
    }
    if (!is_tied) {
      rule.parts.insert(rule.parts.begin(), std::string(k_any));
    }
    rules_.push_back(std::move(rule));
  }
}

bool IgnoreRules::leaves_out(std::string_view path, bool is_folder) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->folders_only && !is_folder) {
      continue;
    }
    std::string_view below = path;
    if (!rule->folder.empty()) {
      if (path.size() <= rule->folder.size() || !path.starts_with(rule->folder) ||
          path[rule->folder.size()] != '/') {
        continue;
      }
      below.remove_prefix(rule->folder.size() + 1);
    }
    if (matches(rule->parts, split(below))) {
      return !rule->takes_back;
    }
  }
  return false;
}

} // namespace dtrain
