// The order in which ranks that have parts of tensors move whole ones (optim/optimizer.h), along
// directions that they gather bucket by bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/nn/tensor_table.h"

namespace trainer {

/// Tensors whose directions are gathered before they are needed, where those of other ranks are
/// freed after.
inline constexpr std::size_t k_directions_ahead = 1;

/// Calls move(tensor) with each of `tensors`, in the arena's order; before it gather(bucket) with
/// each bucket that has some of it, or of the next `ahead` tensors; and after it end(bucket), with
/// each of all buckets, once it has nothing of tensors that are left.
template <typename Gather, typename Move, typename End>
void move_in_order(const std::vector<const Tensor*>& tensors,
                   const std::vector<ArenaRange>& buckets, std::size_t ahead, const Gather& gather,
                   const Move& move, const End& end) {
  std::size_t next = 0;  // Tensor to gather,
  std::size_t begun = 0; // buckets that have been looked at,
  std::size_t ended = 0; // and those that have ended.
  const auto end_before = [&](std::size_t place) {
    for (; ended < buckets.size() && buckets[ended].last <= place; ++ended) {
      end(ended);
    }
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    end_before(tensors[i]->offset);
    for (; next < tensors.size() && next <= i + ahead; ++next) {
      const ArenaRange range = tensors[next]->range();
      for (; begun < buckets.size() && buckets[begun].first < range.last; ++begun) {
        if (range.first < buckets[begun].last) {
          gather(begun);
        }
      }
    }
    move(*tensors[i]);
  }
  end_before(SIZE_MAX);
}

} // namespace trainer
