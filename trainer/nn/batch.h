// What a model is given to learn from, in its device's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trainer {

/// Valid until the loader moves on.
struct Batch {
  std::size_t rows = 0;
  std::span<const float> images;        ///< (rows, features)
  std::span<const std::uint8_t> labels; ///< (rows)
  std::size_t global_rows = 0;          ///< Of all ranks together.
  double seconds = 0;                   ///< Spent gathering it.
  bool is_padding = false; ///< There is nothing left for this rank: its one row counts for nothing.

  /// Rows [first, first + count), or up to the end.
  Batch slice(std::size_t first, std::size_t count) const {
    const std::size_t taken = std::min(count, rows - first);
    const std::size_t features = images.size() / rows;
    return {taken, images.subspan(first * features, taken * features),
            labels.subspan(first, taken)};
  }
};

} // namespace trainer
