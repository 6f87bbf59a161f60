#include "backends/supervised/store/job_index.h"

#include "backends/backend.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

namespace dtrain {

namespace {

/// A number and the byte behind it, taken off the text.
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

JobIndex::JobIndex(std::string text) : text_(std::move(text)) {
  constexpr std::size_t k_usual_entry = 400;
  entries_.reserve(text_.size() / k_usual_entry);
  std::string_view rest = text_;
  if (!take_number(rest, folder_changed_, '\n')) {
    folder_changed_ = 0;
    return;
  }
  for (auto newline = rest.find('\n'); newline != std::string_view::npos;
       newline = rest.find('\n')) {
    auto line = rest.substr(0, newline);
    rest.remove_prefix(newline + 1);
    std::size_t bytes = 0;
    FileVersion version;
    if (!take_number(line, bytes) || !take_number(line, version.inode) ||
        !take_number(line, version.size) || !take_number(line, version.changed) ||
        bytes >= rest.size() || rest[bytes] != '\n') {
      return;
    }
    entries_.emplace(line, Entry{version, rest.substr(0, bytes)});
    rest.remove_prefix(bytes + 1);
  }
}

const JobIndex::Entry* JobIndex::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() ? &found->second : nullptr;
}

std::string index_name(std::string_view namespace_name) {
  return fmt::format(".{}.list", namespace_name);
}

std::string index_text(std::int64_t folder_changed) { return fmt::format("{}\n", folder_changed); }

void append_index_entry(std::string& text, std::string_view name, const FileVersion& version,
                        std::string_view head) {
  if (name.find('\n') == std::string_view::npos) {
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {}\n{}\n", head.size(), version.inode,
                   version.size, version.changed, name, head);
  }
}

} // namespace dtrain
