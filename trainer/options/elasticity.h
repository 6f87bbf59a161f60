// DeepSpeed's elasticity: a global batch that as many numbers of ranks as possible can share
// evenly, in passes of one of the sizes that are given (its elasticity.py).
#pragma once

#include <cstdint>
#include <vector>

namespace trainer {

struct ElasticityOptions {
  std::int64_t most_samples = 2000;             ///< In a global batch, at most 2^30.
  std::vector<std::int64_t> passes = {2, 4, 6}; ///< Samples of a pass, each of one or more.
  std::int64_t fewest_ranks = 1;
  std::int64_t most_ranks = 10'000;
  bool prefers_larger = true; ///< Of batches that are as good.
  bool fits_any_ranks = true; ///< Version 0.2: other ranks have another batch, not an error.
};

struct ElasticBatch {
  std::int64_t samples = 0;
  std::vector<std::int64_t> ranks; ///< How many can share it, rising; empty: no number can.
};

/// No pass is larger than most_samples.
ElasticBatch elastic_batch(const ElasticityOptions& options);

/// The same for a job of so many ranks, which with fits_any_ranks may have a batch of its own: as
/// many of its passes as most_samples holds. Without `ranks` in it: they cannot share it.
ElasticBatch elastic_batch(const ElasticityOptions& options, std::int64_t ranks);

/// The largest pass that divides a rank's share; 0: none does.
std::int64_t elastic_pass(const ElasticityOptions& options, std::int64_t samples,
                          std::int64_t ranks);

} // namespace trainer
