// A folder of safetensors files by number, step-000001500.safetensors, of which the newest few are
// kept: a run's checkpoints, a parameter server's snapshots.
//
// Beside each, written last, lies its manifest, step-000001500.json: the file's length and digest.
// One without was not finished, one that does not fit it has been damaged since.
//
// Ranks may write one together, each its own part, step-000001500.rank-00002-of-00004.safetensors.
// A part has a manifest of its own until rank 0 has found those of all, which it puts together in
// step-000001500.json: from then on, and not before, the parts are one that is finished. What an
// earlier try has left of the same number is told from this one's by a number that ranks agree on.
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
  std::string path; ///< Of one in parts, its manifest's.
};

/// All of them, newest first, those that were not finished too.
std::vector<NumberedFile> numbered_files(const std::string& folder);

/// Throws DataError where there is none.
NumberedFile numbered_file(const std::string& folder, std::int64_t number);

bool has_manifest(const std::string& path);

/// The files that hold it: itself, or its parts by rank. Throws DataError where it says none.
std::vector<std::string> files_of(const std::string& path);

/// Empty where it is as it was saved.
std::string what_is_wrong(const std::string& path);

/// Removes what a process that was killed had begun to write. Of the one that saves there alone.
void remove_unfinished(const std::string& folder);

/// Which one of the parts that ranks write together.
struct RankPart {
  int rank = 0;
  int ranks = 1;
  std::uint64_t writers = 0; ///< The same on all these ranks, and on no others.
};

/// One that is being saved; what was there before stays until it is, and if it is not.
class NumberedWriter {
 public:
  /// Throws Error, as all of it.
  NumberedWriter(const std::string& folder, std::int64_t number,
                 const std::map<std::string, std::string>& metadata,
                 std::span<const TensorShape> tensors, const std::optional<RankPart>& part = {});
  /// As SafeTensorsWriter.
  void write(std::span<const float> values) { file_.write(values); }
  /// To the disk, with its manifest. Then removes, of those with lower numbers, what is older than
  /// the newest `keep` that are complete, this one among them. Higher ones are left alone.
  ///
  /// A part: those that are removed, and the manifest of all, are rank 0's to see to once the other
  /// parts are there. Until then it calls `wait` again and again, with the path of the next one;
  /// it ends the waiting by what it throws.
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
