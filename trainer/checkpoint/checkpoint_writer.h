// Writes a checkpoint's file, of arenas that come a piece at a time: one that holds all of them,
// each tensor row-major, or a rank's part of it, ranges of tensors as they lie there
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

/// What is said of a checkpoint beside its tensors.
struct CheckpointHead {
  std::int64_t step = 0;
  std::map<std::string, std::string> metadata = {};
};

class CheckpointWriter {
 public:
  /// What is to come: of an arena for each of the prefixes, which begin its tensors' names, the
  /// ranges `own`. Without `part` they are all of the arena. The table outlives it. Throws Error,
  /// as all of it.
  CheckpointWriter(const std::string& folder, const CheckpointHead& head, const TensorTable& table,
                   const std::vector<std::string>& prefixes, const std::vector<ArenaRange>& own,
                   const std::optional<RankPart>& part);

  /// The values that follow: an arena's ranges, one behind the other, then the next one's. They may
  /// be cut anywhere; of a tensor that has to be turned it holds what has come. Throws Error where
  /// one is no finite number.
  void add(std::span<const float> values);

  /// As NumberedWriter.
  void commit(std::size_t keep, const std::function<void(const std::string&)>& wait) {
    file_.commit(keep, wait);
  }

 private:
  /// A range of a tensor, in what it takes in an arena.
  struct Piece {
    const Tensor* tensor;
    ArenaRange range;

    /// Without what fills the tensor up at its end; perhaps empty.
    ArenaRange held() const;
  };
  static std::vector<Piece> pieces_of(const TensorTable& table, const std::vector<ArenaRange>& own);
  std::vector<TensorShape> shapes() const;
  void write(const Piece& piece, std::span<const float> values);

  std::int64_t step_;
  std::vector<std::string> prefixes_;
  std::vector<Piece> pieces_; ///< Of each arena.
  bool is_part_;
  NumberedWriter file_;
  std::size_t arena_ = 0; ///< Where what comes next belongs:
  std::size_t piece_ = 0;
  std::size_t at_ = 0;      ///< In the piece.
  std::vector<float> held_; ///< Of a tensor that has to be turned, so far.
  std::vector<float> row_major_;
};

} // namespace trainer
