// What a model is given to learn from, in its device's memory: images with labels, or text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer/device/kernels.h"

namespace trainer {

/// Rows of T tokens, some of which are masked. A row's loss is the mean over its masked tokens, so
/// that a batch's, the mean over rows, is the same whoever takes which of them.
struct Tokens {
  std::size_t length = 0;                     ///< T
  std::size_t most_masked = 0;                ///< K: of a row.
  std::span<const std::int32_t> ids = {};     ///< (rows, T), as the model sees them.
  std::span<const std::int32_t> lengths = {}; ///< (rows): what is behind so many is padding.
  /// (rows, K): where in the row, rising; -1 past the last.
  std::span<const std::int32_t> masked = {};
  std::span<const std::int32_t> targets = {}; ///< (rows, K): the id that stood there.

  Tokens slice(std::size_t first, std::size_t count) const {
    return {length,
            most_masked,
            ids.subspan(first * length, count * length),
            lengths.subspan(first, count),
            masked.subspan(first * most_masked, count * most_masked),
            targets.subspan(first * most_masked, count * most_masked)};
  }
};

/// Valid until the loader moves on.
struct Batch {
  std::size_t rows = 0;
  std::span<const float> images = {};        ///< (rows, features); none of text
  std::span<const std::uint8_t> labels = {}; ///< (rows)
  std::size_t global_rows = 0;               ///< Of all ranks together.
  double seconds = 0;                        ///< Spent gathering it.
  bool is_padding = false; ///< There is nothing left for this rank: its one row counts for nothing.
  Tokens tokens = {};
  std::uint64_t position = 0; ///< Of the first row in the stream of samples.
  /// What makes it, to be put on the device's stream yet.
  std::optional<Gathering> gathering = {};

  /// Rows [first, first + count), or up to the end.
  Batch slice(std::size_t first, std::size_t count) const {
    const std::size_t taken = std::min(count, rows - first);
    Batch part{.rows = taken, .position = position + first};
    if (tokens.length > 0) {
      part.tokens = tokens.slice(first, taken);
      return part;
    }
    const std::size_t features = images.size() / rows;
    part.images = images.subspan(first * features, taken * features);
    part.labels = labels.subspan(first, taken);
    return part;
  }
};

} // namespace trainer
