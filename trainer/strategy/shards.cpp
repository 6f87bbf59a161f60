#include "trainer/strategy/shards.h"

#include <algorithm>

#include "trainer/collectives/collective.h"

namespace trainer {

std::size_t bucket_floats(const Buckets& buckets, std::size_t gradients) {
  constexpr std::size_t k_least = (128 << 10) / sizeof(float);
  constexpr std::size_t k_most_buckets = 64;
  return buckets.bytes == 0 ? std::max(k_least, gradients / k_most_buckets)
                            : std::max<std::size_t>(buckets.bytes / sizeof(float), 1);
}

Shards::Shards(std::size_t floats, const Buckets& buckets, int rank, int ranks)
    : rank_(rank), ranks_(ranks) {
  const std::size_t wanted = std::min(floats, bucket_floats(buckets, floats));
  const std::size_t size = (wanted + k_granule - 1) / k_granule * k_granule;
  for (std::size_t first = 0; first < floats;) {
    // What would be left for the last one alone may be too little to be worth it.
    const std::size_t last = floats - first < size + size / 2 ? floats : first + size;
    buckets_.push_back({first, last});
    first = last;
  }
}

ArenaRange Shards::chunk(std::size_t bucket, int rank) const {
  const ArenaRange& whole = buckets_[bucket];
  const Chunks chunks(whole.size(), ranks_);
  return {whole.first + chunks.begin(rank), whole.first + chunks.begin(rank + 1)};
}

std::vector<ArenaRange> Shards::own_of_buckets() const {
  std::vector<ArenaRange> all;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    all.push_back(own(bucket));
  }
  return all;
}

std::vector<ArenaRange> Shards::own() const {
  std::vector<ArenaRange> all = own_of_buckets();
  std::erase_if(all, [](const ArenaRange& range) { return range.size() == 0; });
  return all;
}

} // namespace trainer
