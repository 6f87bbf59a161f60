// The heads of a namespace's jobs that have ended, in one file: `list` of ten thousand opens that
// one, and asks of each job only whether its record is still the file that the head was read from.
// Not even that while no job has come or gone since: the record of one that has ended stays as it
// is, so only another job of that name could have another.
//
//   ROOT/jobs/BACKEND/.NAMESPACE.list    when the namespace's folder had last changed, how many
//     CHANGED COUNT                      jobs it has, and then of each a line and its record's
//     BYTES INODE SIZE CHANGED NAME      begin; of one that had not ended, four zeros and nothing
//     { "name": …
// It is no record. A job that has none here, or another file, is read from its folder; who lists
// rewrites the index where that befell many, or jobs have come or gone. Without it, all is the
// same and takes longer.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// Which file it is, and since when it is as it is.
struct FileVersion {
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed = 0; ///< Nanoseconds.

  static FileVersion of(const struct stat& info);
  bool operator==(const FileVersion&) const = default;
};

struct JobIndex {
  struct Entry {
    std::string_view name;
    FileVersion version;   ///< Of the record.
    std::string_view head; ///< Empty where the job had not ended.
  };

  /// When the namespace's folder had last changed, as the entries were compared with the records;
  /// 0: it may have changed since without a trace, or some are missing here.
  std::int64_t folder_changed = 0;
  std::vector<Entry> entries;
};

/// Parses a file, which may be cut off or damaged anywhere; entries are views into the text.
JobIndex parse_job_index(std::string_view text);

/// A namespace's index as text.
std::string index_text(const JobIndex& index);

/// The name of a namespace's index.
std::string index_name(std::string_view namespace_name);

} // namespace dtrain
