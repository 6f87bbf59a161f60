// What one parameter server holds: its ranges of the model's arena and their optimizer.
//
// The ranges lie one after the other in an arena of the server's own. A step averages the workers'
// gradients, weighted by their samples and added in the order given, and applies Adam, block by
// block so that a block is read from cache: 4·(k+6) bytes a value move for k gradients.
//
// Not for use by several threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/device/buffer.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/optim/optimizer.h"

namespace trainer {

/// One worker's share of a step.
struct Contribution {
  std::vector<const float*> gradients; ///< One for each range, in order.
  double weight = 1;                   ///< Samples.
  double factor = 1;                   ///< Of the gradients.
};

class ShardStore {
 public:
  ShardStore(std::vector<ArenaRange> ranges, const LearningRate& learning_rate, Device& device);

  const std::vector<ArenaRange>& ranges() const { return ranges_; }
  std::span<float> parameters() const { return parameters_.span(); } ///< Those of all ranges.

  /// Number of updates applied to the values.
  std::int64_t version() const { return optimizer_.step(); }

  void apply(std::span<const Contribution> contributions);

  /// Writes all that continuing takes to FOLDER/step-VERSION.safetensors, whole or not at all, and
  /// removes all but the newest `keep`. `holds` must be the same at load(). Throws DataError.
  void save(const std::string& folder, const std::string& holds, std::size_t keep) const;

  /// The versions of the snapshots there that are whole, newest first.
  static std::vector<std::int64_t> snapshots(const std::string& folder);

  /// Loads a snapshot and removes later ones, whose steps will be repeated. Throws DataError if it
  /// is missing or belongs to something else.
  void load(const std::string& folder, const std::string& holds, std::int64_t version);

 private:
  /// The parameters, and each moment of theirs.
  struct Part {
    TensorShape shape;
    std::span<float> values;
  };
  std::vector<Part> parts() const;

  std::vector<ArenaRange> ranges_;
  Buffer parameters_;
  Buffer gradients_;
  LearningRate learning_rate_;
  Optimizer optimizer_;
};

} // namespace trainer
