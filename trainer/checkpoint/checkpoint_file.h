// Reads a checkpoint in either form: one file that holds each tensor row-major, or the ranks' parts
// and their manifest (numbered_files.h).
//
// A part is a safetensors file too. It holds ranges of tensors in the arena's layout, as float32
// ("hidden.weight[4096:8192]"), and in its metadata, under "tensors", the tensors that they are
// ranges of: a JSON array of {"name", "shape", "layout"}, in the arena's order. So each rank writes
// what it owns as it is, wherever that begins and ends, and the reader converts the layout.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

/// Floats that a tensor takes in an arena, without the padding at its end.
inline std::size_t held_floats(const Tensor& tensor) {
  return tensor.layout == Layout::panels ? tensor.size : tensor.count();
}

/// The "tensors" of a part's metadata: for each prefix in turn, the table's tensors with the prefix
/// before their names.
std::string describe_tensors(const TensorTable& table, const std::vector<std::string>& prefixes);
/// "hidden.weight[4096:8192]"
std::string range_name(const std::string& tensor, const ArenaRange& range);

class CheckpointFile {
 public:
  /// Throws DataError naming the file and what is wrong with it or missing.
  explicit CheckpointFile(const std::string& path);

  /// The manifest's, of a checkpoint in parts.
  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return files_.front()->metadata(); }

  struct Piece {
    ArenaRange range; ///< Within the tensor's floats in its layout.
    const SafeTensorsFile* file;
    const StoredTensor* stored;
  };
  struct Entry {
    Tensor tensor; ///< As in the arena that it was saved from, without its place there.
    std::vector<Piece> pieces = {};
  };
  const std::vector<Entry>& entries() const { return entries_; }
  /// Null if there is none of that name.
  const Entry* find(const std::string& name) const;

  /// Reads the entry's tensor, in its layout, from float `first` on; at most held_floats() of it.
  void read(const Entry& entry, std::size_t first, std::span<float> to) const;
  /// All values, row-major.
  std::vector<float> values(const Entry& entry) const;

 private:
  void add(Entry entry);
  void add_whole();
  void add_parts();

  std::string path_;
  std::vector<std::unique_ptr<SafeTensorsFile>> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> numbers_; ///< Name -> index in entries_.
};

/// Throws DataError, naming the file and the tensor `name` in it, unless that is one of the table's
/// with one of `prefixes` before its name.
void check_is_known(const std::string& path, std::string_view name, const TensorTable& table,
                    const std::vector<std::string>& prefixes);

/// Throws as CheckpointFile does.
SafeTensors read_checkpoint(const std::string& path);

} // namespace trainer
