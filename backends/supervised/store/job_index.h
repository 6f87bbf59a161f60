// The heads of a namespace's jobs that have ended, in one file: `list` of ten thousand opens that
// one, and asks of each job only whether its record is still the file that the head was read from.
// Not even that while no job has come or gone since: the record of one that has ended stays as it
// is, so only another job of that name could have another.
//
//   ROOT/jobs/BACKEND/.NAMESPACE.list    when the namespace's folder had last changed, and then of
//     CHANGED                            each job a line and its record's begin:
//     BYTES INODE SIZE CHANGED NAME
//     { "name": …
//
// It is no record. A job that has none here, or another file, is read from its folder; who lists
// writes the index anew where that befell many, or jobs have come or gone. Without it, all is the
// same and takes longer.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace dtrain {

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
  struct Entry {
    FileVersion version;
    std::string_view head; ///< Views into the index.
  };

  /// From a file's text, which may be cut off or damaged anywhere.
  explicit JobIndex(std::string text);
  JobIndex(const JobIndex&) = delete;
  JobIndex& operator=(const JobIndex&) = delete;

  std::size_t size() const { return entries_.size(); }

  /// When the namespace's folder had last changed, as the entries were compared with the records;
  /// 0: it may have changed since without a trace.
  std::int64_t folder_changed() const { return folder_changed_; }

  /// Null where it has none of that name.
  const Entry* find(std::string_view name) const;

 private:
  std::string text_;
  std::int64_t folder_changed_ = 0;
  std::unordered_map<std::string_view, Entry> entries_; ///< They view into the text.
};

/// The name of a namespace's index.
std::string index_name(std::string_view namespace_name);

/// An index's text without a job.
std::string index_text(std::int64_t folder_changed);

/// Appends a job to it.
void append_index_entry(std::string& text, std::string_view name, const FileVersion& version,
                        std::string_view head);

} // namespace dtrain
