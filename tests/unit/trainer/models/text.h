// Rows of random tokens, for tests of what learns from text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer/nn/batch.h"
#include "trainer/random.h"

namespace trainer::test {

struct RandomText {
  /// `lengths`: of the rows; each row has `most_masked` masked tokens, spread over it.
  RandomText(std::size_t length_, std::size_t most_masked_, std::size_t vocabulary,
             std::vector<std::int32_t> lengths_)
      : length(length_), most_masked(most_masked_), lengths(std::move(lengths_)),
        ids(lengths.size() * length), masked(lengths.size() * most_masked), targets(masked.size()) {
    const auto number = [&](std::uint32_t stream, std::size_t at) {
      return static_cast<std::int32_t>(random_at(7, RandomStream::synthetic_data, stream, at)[0] %
                                       vocabulary);
    };
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = number(0, i);
    }
    for (std::size_t i = 0; i < masked.size(); ++i) {
      const auto of_row = static_cast<std::size_t>(lengths[i / most_masked]);
      masked[i] = static_cast<std::int32_t>(i % most_masked * of_row / most_masked);
      targets[i] = number(1, i);
    }
  }
  Batch batch() const {
    return Batch{.rows = lengths.size(), .global_rows = lengths.size(), .position = 40}
        .with(field::ids, ids)
        .with(field::lengths, lengths)
        .with(field::masked, masked)
        .with(field::targets, targets);
  }

  std::size_t length;
  std::size_t most_masked;
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> masked;
  std::vector<std::int32_t> targets;
};

} // namespace trainer::test
