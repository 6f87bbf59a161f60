// The heads of a namespace's jobs that have ended, in one file: `list` of ten thousand opens that
// one, and asks of each job only whether its record is still the file that the head was read from.
//
//   ROOT/jobs/BACKEND/NAMESPACE/.list    of each job a line and its record's begin:
//     BYTES INODE SIZE CHANGED NAME
//     { "name": …
//
// It is no record. A job that has none here, or another file, is read from its folder; who lists
// writes the index anew where that befell many. Without it, all is the same and takes longer.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace dtrain {

inline constexpr const char* k_index_file = ".list";

/// Which file it is, and since when it is as it is.
struct FileVersion {
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed = 0; ///< Nanoseconds.

  static FileVersion of(const struct stat& info);
  bool operator==(const FileVersion&) const = default;
};

class JobIndex {
 public:
  /// From a file's text, which may be cut off or damaged anywhere.
  explicit JobIndex(std::string text);
  JobIndex(const JobIndex&) = delete;
  JobIndex& operator=(const JobIndex&) = delete;

  std::size_t size() const { return entries_.size(); }

  /// The head's text; empty where it is not that file's.
  std::string_view find(std::string_view name, const FileVersion& version) const;

 private:
  struct Entry {
    FileVersion version;
    std::string_view head;
  };

  std::string text_;
  std::unordered_map<std::string_view, Entry> entries_; ///< They view into the text.
};

/// Appends a job to an index's text.
void append_index_entry(std::string& text, std::string_view name, const FileVersion& version,
                        std::string_view head);

} // namespace dtrain
