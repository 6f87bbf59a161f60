#include "trainer/strategy/multi_worker.h"

#include <algorithm>

namespace trainer {

MultiWorker::MultiWorker(Communicator& communicator, AdamOptimizer& optimizer,
                         std::span<float> gradients, std::size_t bucket_bytes)
    : communicator_(communicator), optimizer_(optimizer), gradients_(gradients),
      bucket_size_(communicator.world_size() == 1
                       ? gradients.size()
                       : std::max<std::size_t>(bucket_bytes / sizeof(float), 1)) {}

Score MultiWorker::step(Mlp& model, const Batch& batch) {
  const float scale =
      1.0F / (static_cast<float>(batch.rows) * static_cast<float>(communicator_.world_size()));
  buckets_.clear();
  std::size_t started = 0;
  const Score score = model.forward_backward(batch, scale, bucket_size_, [&](std::size_t ready) {
    if (ready - started >= bucket_size_ || ready == gradients_.size()) {
      const auto bucket = gradients_.subspan(started, ready - started);
      buckets_.push_back({communicator_.start_all_reduce(bucket, "gradients"), started, ready});
      started = ready;
    }
  });
  optimizer_.begin_step();
  for (const Bucket& bucket : buckets_) {
    communicator_.wait(bucket.ticket);
    optimizer_.update(bucket.first, bucket.last);
  }
  communicator_.set_step(optimizer_.step());
  return score;
}

} // namespace trainer
