// DeepSpeed's elasticity: a global batch that as many numbers of ranks as possible can share
// evenly, in passes of one of the sizes that are given (its elasticity.py, version 0.1).
#pragma once

#include <cstdint>
#include <vector>

namespace trainer {

struct ElasticityOptions {
  std::int64_t most_samples = 0;         ///< In a global batch, at most 2^30.
  std::vector<std::int64_t> passes = {}; ///< Samples of a pass, each of one or more.
  std::int64_t fewest_ranks = 1;
  std::int64_t most_ranks = 10'000;
  bool prefers_larger = true; ///< Of batches that are as good.
};

struct ElasticBatch {
  std::int64_t samples = 0;
  std::vector<std::int64_t> ranks; ///< How many can share it, rising; empty: no number can.
};

/// No pass is larger than most_samples.
ElasticBatch elastic_batch(const ElasticityOptions& options);

/// The largest pass that divides a rank's share; 0: none does.
std::int64_t elastic_pass(const ElasticityOptions& options, std::int64_t samples,
                          std::int64_t ranks);

} // namespace trainer
