// A folder of numbered safetensors files, step-000001500.safetensors, of which the newest few are
// kept: a run's checkpoints, a parameter server's snapshots.
//
// Each has a manifest, step-000001500.json, which is written last and holds the file's length and
// digest. A file without a manifest is unfinished; a file that does not match it is damaged.
//
// Ranks may write one file together, each a part: step-000001500.rank-00002-of-00004.safetensors.
// Each part has its own manifest until rank 0 has found all of them and merged them into
// step-000001500.json: only then are the parts finished. A number that the ranks agree on tells
// their parts from those that an earlier attempt left under the same step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace trainer {

struct NumberedFile {
  std::int64_t number = 0;
  std::string path; ///< The manifest's, of a file in parts.
};

/// All files in the folder, newest first, the unfinished ones included.
std::vector<NumberedFile> numbered_files(const std::string& folder);

/// Throws DataError if there is none of that number.
NumberedFile numbered_file(const std::string& folder, std::int64_t number);

bool has_manifest(const std::string& path);

/// The file itself, or its parts by rank. Throws DataError if its manifest names no parts.
std::vector<std::string> files_of(const std::string& path);

/// Why the file is damaged or unfinished, in one line; empty if it is as it was saved.
std::string what_is_wrong(const std::string& path);

/// Removes unfinished files of killed processes. Only for the one process that saves to the folder.
void remove_unfinished(const std::string& folder);

/// One of the parts that ranks write together.
struct RankPart {
  int rank = 0;
  int ranks = 1;
  std::uint64_t writers = 0; ///< Identifies these ranks' attempt: the same on all of them.
};

/// Saves a file. Earlier files stay until it is saved, and also if that fails.
class NumberedWriter {
 public:
  /// All functions throw Error if the file cannot be written.
  NumberedWriter(const std::string& folder, std::int64_t number,
                 const std::map<std::string, std::string>& metadata,
                 std::span<const TensorShape> tensors, const std::optional<RankPart>& part = {});
  /// See SafeTensorsWriter::write().
  void write(std::span<const float> values) { file_.write(values); }
  /// Flushes the file to the disk and writes its manifest. Then removes files with lower numbers,
  /// except the newest `keep` complete ones (this one counts). Files with higher numbers stay.
  ///
  /// Of parts, rank 0 writes the common manifest and removes older files once all parts are there.
  /// Until then it calls `wait` repeatedly with the path of the next missing part; `wait` throws to
  /// end the waiting.
  void commit(std::size_t keep, const std::function<void(const std::string&)>& wait = {});

 private:
  void join_parts(const std::function<void(const std::string&)>& wait) const;
  void prune(std::size_t keep) const;

  std::string folder_;
  std::int64_t number_;
  std::optional<RankPart> part_;
  std::string path_;
  SafeTensorsWriter file_;
};

void remove_numbered(const NumberedFile& file);

} // namespace trainer
