// Synchronous data parallelism: every rank holds the whole model, takes its own share of a batch,
// and all apply the same averaged gradient.
//
// A step: forward; backward, which finishes the gradient arena from its start; as soon as a bucket
// is full its all-reduce starts and runs while backward goes on; then, bucket by bucket, wait and
// update. The mean over ranks costs nothing: the loss is scaled by 1 / (batch · world size) before
// backward. With one rank there is one bucket and no traffic.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/models/mlp.h"
#include "trainer/optim/adam.h"

namespace trainer {

class MultiWorker {
 public:
  MultiWorker(Communicator& communicator, AdamOptimizer& optimizer, std::span<float> gradients,
              std::size_t bucket_bytes);

  /// One step of training. The score is this rank's own.
  Score step(Mlp& model, const Batch& batch);

 private:
  struct Bucket {
    Communicator::Ticket ticket;
    std::size_t first;
    std::size_t last;
  };

  Communicator& communicator_;
  AdamOptimizer& optimizer_;
  std::span<float> gradients_;
  std::size_t bucket_size_;     ///< In floats.
  std::vector<Bucket> buckets_; ///< Under way in this step.
};

} // namespace trainer
