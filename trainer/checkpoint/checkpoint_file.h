// A checkpoint as it lies in its folder, whoever wrote it: one file that holds each tensor
// row-major, or the ranks' parts behind their manifest (numbered_files.h).
//
// A part is a safetensors file too. It holds ranges of tensors as they lie in an arena, of float32,
// "hidden.weight[4096:8192]", and in its metadata, by "tensors", what all of them are ranges of: a
// JSON array of {"name", "shape", "layout"}, in the arena's order. So ranks write what they own as
// it is, wherever that begins and ends, and who reads it turns it to a layout of its own.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

/// Floats that a tensor takes in an arena, less what fills it up at its end.
inline std::size_t held_floats(const Tensor& tensor) {
  return tensor.layout == Layout::panels ? tensor.size : tensor.count();
}

/// What a part's metadata says by "tensors", of a table's of which each name begins with each of
/// the prefixes in turn.
std::string describe_tensors(const TensorTable& table, const std::vector<std::string>& prefixes);
/// "hidden.weight[4096:8192]"
std::string range_name(const std::string& tensor, const ArenaRange& range);

class CheckpointFile {
 public:
  /// Throws DataError naming the file and what is wrong with it, or missing.
  explicit CheckpointFile(const std::string& path);

  /// Of one in parts, its manifest's.
  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return files_.front()->metadata(); }

  struct Piece {
    ArenaRange range; ///< In what the tensor takes.
    const SafeTensorsFile* file;
    const StoredTensor* stored;
  };
  struct Entry {
    Tensor tensor; ///< As it was in the arena that it is of, but for where.
    std::vector<Piece> pieces = {};
  };
  const std::vector<Entry>& entries() const { return entries_; }
  /// None: nullptr.
  const Entry* find(const std::string& name) const;

  /// What lies in the entry's tensor from `first` on, in its layout, held_floats() of it at most.
  void read(const Entry& entry, std::size_t first, std::span<float> to) const;
  /// All of it, row-major.
  std::vector<float> values(const Entry& entry) const;

 private:
  void add(Entry entry);
  void add_whole();
  void add_parts();

  std::string path_;
  std::vector<std::unique_ptr<SafeTensorsFile>> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> numbers_; ///< Of the entries, by name.
};

/// Throws as CheckpointFile does.
SafeTensors read_checkpoint(const std::string& path);

} // namespace trainer
