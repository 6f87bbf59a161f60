// A folder of safetensors files by number, step-000001500.safetensors, of which the newest few are
// kept: a run's checkpoints, a parameter server's snapshots.
//
// Beside each, written last, lies its manifest, step-000001500.json: the file's length and digest.
// One without was not finished, one that does not fit it has been damaged since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace trainer {

struct NumberedFile {
  std::int64_t number = 0;
  std::string path;
};

/// All of them, newest first, those that were not finished too.
std::vector<NumberedFile> numbered_files(const std::string& folder);

bool has_manifest(const std::string& path);

/// Empty where the file is as it was saved.
std::string what_is_wrong(const std::string& path);

/// Removes what a process that was killed had begun to write. Of the one that saves there alone.
void remove_unfinished(const std::string& folder);

/// One that is being saved; what was there before stays until it is, and if it is not.
class NumberedWriter {
 public:
  /// Throws Error, as all of it.
  NumberedWriter(const std::string& folder, std::int64_t number,
                 const std::map<std::string, std::string>& metadata,
                 std::span<const TensorShape> tensors);
  /// As SafeTensorsWriter.
  void write(std::span<const float> values) { file_.write(values); }
  /// To the disk, with its manifest. Then removes, of those with lower numbers, what is older than
  /// the newest `keep` that are complete, this one among them. Higher ones are left alone.
  void commit(std::size_t keep);

 private:
  std::string folder_;
  std::int64_t number_;
  std::string path_;
  SafeTensorsWriter file_;
};

void remove_numbered(const NumberedFile& file);

} // namespace trainer
