// What one parameter server holds: its shards' values and their optimizer.
//
// The shards lie one after the other in an arena of the server's own, dense ones first. A step
// averages the workers' gradients, weighted by their samples and added in the order given, and
// applies Adam, block by block so that a block is read from cache: 4·(k+6) bytes a value move for k
// gradients. Of a sparse shard only rows that were pushed change, moments included (lazy Adam);
// a row's gradient is divided by the samples of all workers, those that did not push it included.
//
// Not for use by several threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/buffer.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/parameter_server/partition.h"

namespace trainer {

/// Gradients of rows of one sparse shard.
struct SparseRows {
  std::size_t shard = 0; ///< In the store's shards().
  std::vector<std::uint64_t> rows;
  std::vector<float> values; ///< (rows, row_length)
};

/// One worker's share of a step.
struct Contribution {
  std::vector<const float*> dense; ///< One a dense shard, in order.
  std::span<const SparseRows> sparse;
  double weight = 1; ///< Samples.
};

class ShardStore {
 public:
  ShardStore(std::vector<Shard> shards, const LearningRate& learning_rate, Device& device);

  /// Dense ones first; otherwise as given.
  const std::vector<Shard>& shards() const { return shards_; }
  std::size_t dense_shards() const { return dense_shards_; }
  std::size_t dense_count() const { return dense_count_; } ///< Floats of all dense shards.

  /// Of all shards.
  std::span<float> parameters() const { return parameters_.span(); }
  std::span<float> shard_parameters(std::size_t shard) const;
  std::span<float> row(std::size_t shard, std::uint64_t row) const;

  /// How many updates the values have seen.
  std::int64_t version() const { return optimizer_.step(); }

  void apply(std::span<const Contribution> contributions);

  /// Writes all that continuing takes to FOLDER/step-VERSION.safetensors, whole or not at all, and
  /// removes all but the newest `keep`. `job` must be the same at load(). Throws DataError.
  void save(const std::string& folder, const std::string& job, std::size_t keep) const;

  /// Loads version `version`; -1: the newest that is whole. False: there is none. Throws DataError
  /// when the one found belongs to another job or holds other shards.
  bool load(const std::string& folder, const std::string& job, std::int64_t version);

  /// Removes snapshots of later versions: of steps that are to be done again.
  static void forget_after(const std::string& folder, std::int64_t version);

 private:
  /// A shard's values, or a moment of theirs.
  struct Part {
    std::string name;
    const Shard& shard;
    std::span<float> values;
  };

  std::vector<Part> parts() const;
  void apply_sparse(std::span<const Contribution> contributions, double samples);
  std::string describe(const std::string& job) const;

  std::vector<Shard> shards_;
  std::vector<std::size_t> starts_; ///< Of each shard in the arenas.
  std::size_t dense_shards_ = 0;
  std::size_t dense_count_ = 0;
  Buffer parameters_;
  Buffer gradients_;
  LearningRate learning_rate_;
  Optimizer optimizer_;
};

} // namespace trainer
