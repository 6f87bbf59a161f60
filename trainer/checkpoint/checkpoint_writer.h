// Writes a checkpoint's file from arenas that are given a piece at a time: a whole checkpoint, with
// each tensor row-major, or a rank's part, with ranges of tensors in the arena's layout
// (checkpoint_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/numbered_files.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

/// What a checkpoint holds besides its tensors.
struct CheckpointHead {
  std::int64_t step = 0;
  std::map<std::string, std::string> metadata = {};
};

class CheckpointWriter {
 public:
  /// One arena per prefix is written, whose tensors' names begin with the prefix; of each arena the
  /// ranges `own`, which without `part` are all of it. The table outlives the writer. All functions
  /// throw Error if the file cannot be written.
  CheckpointWriter(const std::string& folder, const CheckpointHead& head, const TensorTable& table,
                   const std::vector<std::string>& prefixes, const std::vector<ArenaRange>& own,
                   const std::optional<RankPart>& part);

  /// Appends values: an arena's ranges in order, then the next arena's, cut anywhere. It buffers a
  /// tensor whose layout has to be converted. Throws Error if a value is not finite.
  void add(std::span<const float> values);

  /// See NumberedWriter::commit().
  void commit(std::size_t keep, const std::function<void(const std::string&)>& wait) {
    file_.commit(keep, wait);
  }

 private:
  /// A range of a tensor, within its floats in an arena.
  struct Piece {
    const Tensor* tensor;
    ArenaRange range;

    /// Without the padding at the tensor's end; may be empty.
    ArenaRange held() const;
  };
  static std::vector<Piece> pieces_of(const TensorTable& table, const std::vector<ArenaRange>& own);
  std::vector<TensorShape> shapes() const;
  void write(const Piece& piece, std::span<const float> values);

  std::int64_t step_;
  std::vector<std::string> prefixes_;
  std::vector<Piece> pieces_; ///< The same for each arena.
  bool is_part_;
  NumberedWriter file_;
  std::size_t arena_ = 0; ///< Where the next value belongs:
  std::size_t piece_ = 0;
  std::size_t at_ = 0;      ///< In the piece.
  std::vector<float> held_; ///< Values so far of a tensor whose layout has to be converted.
  std::vector<float> row_major_;
};

} // namespace trainer
