#include "backends/supervised/store/job_index.h"

#include "backends/job_status.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

namespace dtrain {

namespace {

/// Takes a number and the byte after it off the text.
template <typename Number>
bool take_number(std::string_view& line, Number& value, char behind = ' ') {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  const auto length = static_cast<std::size_t>(end - line.data());
  if (error != std::errc() || length >= line.size() || line[length] != behind) {
    return false;
  }
  line.remove_prefix(length + 1);
  return true;
}

} // namespace

FileVersion FileVersion::of(const struct stat& info) {
  return {info.st_ino, info.st_size, info.st_ctim.tv_sec * k_second + info.st_ctim.tv_nsec};
}

JobIndex parse_job_index(std::string_view text) {
  JobIndex index;
  std::int64_t folder_changed = 0;
  std::size_t count = 0;
  constexpr std::size_t k_least_entry = 10;
  if (!take_number(text, folder_changed) || !take_number(text, count, '\n') ||
      count > text.size() / k_least_entry) {
    return index;
  }
  index.entries.reserve(count);
  for (auto newline = text.find('\n'); newline != std::string_view::npos;
       newline = text.find('\n')) {
    auto line = text.substr(0, newline);
    text.remove_prefix(newline + 1);
    std::size_t bytes = 0;
    FileVersion version;
    if (!take_number(line, bytes) || !take_number(line, version.inode) ||
        !take_number(line, version.size) || !take_number(line, version.changed) ||
        bytes >= text.size() || text[bytes] != '\n') {
      return index;
    }
    index.entries.push_back({line, version, text.substr(0, bytes)});
    text.remove_prefix(bytes + 1);
  }
  if (index.entries.size() == count) {
    index.folder_changed = folder_changed;
  }
  return index;
}

std::string index_text(const JobIndex& index) {
  auto text = fmt::format("{} {}\n", index.folder_changed, index.entries.size());
  for (const auto& [name, version, head] : index.entries) {
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {}\n{}\n", head.size(), version.inode,
                   version.size, version.changed, name, head);
  }
  return text;
}

std::string index_name(std::string_view namespace_name) {
  return fmt::format(".{}.list", namespace_name);
}

} // namespace dtrain
