// Buckets whose parameters are still being updated while the next step has begun.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class UpdatedBuckets {
 public:
  /// Of these, in the arena's order, which outlive this.
  explicit UpdatedBuckets(const std::vector<ArenaRange>& buckets)
      : buckets_(buckets), events_(buckets.size()) {}

  /// The bucket's parameters are there after this event.
  void note(std::size_t bucket, std::shared_ptr<const Event> event) {
    events_[bucket] = std::move(event);
  }
  /// The event that nobody has taken since; null: there is none, and nothing to wait for.
  std::shared_ptr<const Event> take(std::size_t bucket) {
    return std::exchange(events_[bucket], nullptr);
  }
  /// Has the stream wait for those that hold some of a range.
  void wait(Stream& stream, const ArenaRange& range) {
    const auto first =
        std::partition_point(buckets_.begin(), buckets_.end(),
                             [&](const ArenaRange& b) { return b.last <= range.first; });
    for (auto bucket = first; bucket != buckets_.end() && bucket->first < range.last; ++bucket) {
      if (const auto event = take(static_cast<std::size_t>(bucket - buckets_.begin()))) {
        stream.wait(*event);
      }
    }
  }

 private:
  const std::vector<ArenaRange>& buckets_;
  std::vector<std::shared_ptr<const Event>> events_;
};

} // namespace trainer
