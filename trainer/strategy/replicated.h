// The owner (nn/parameter_owner.h) of parameters of a rank that holds all of them. If the model
// computes in 16 bits, each unit is rounded when it is first needed after a change; on a GPU that
// multiplies in bf16 all of them are, when a pass begins after a change, unless the optimizer
// writes what it updates in bf16 too.
#pragma once

#include <span>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/optim/precision.h"
#include "trainer/strategy/updated_buckets.h"

namespace trainer {

/// Where a model's parameters and gradients are, in the device's memory.
struct Arenas {
  std::span<float> parameters;
  std::span<float> gradients = {}; ///< Empty if only evaluate() is called.
  Precision precision = Precision::fp32;
  std::span<float> rounded = {}; ///< The 16-bit copy that the model computes with; not of fp32.
  /// As Gathered gathers parameters in 16 bits, in paged memory of half as many floats; empty: it
  /// gathers float32.
  std::span<float> halves = {};
  /// UnitMemory::rounded of all parameters, in this device's memory; null: no such copy.
  Bf16Value* factors = nullptr;
  bool keeps_factors = false;        ///< Who changes parameters writes them there too.
  Device* device = nullptr;          ///< Of paged memory, which it commits.
  UpdatedBuckets* updated = nullptr; ///< Of parameters that may still be being updated; or null.
  /// Of which products in 16 bits read some rows behind the last one (Matmul::b_rows).
  std::vector<ArenaRange> embeddings = {};
};

class Replicated : public ParameterOwner {
 public:
  /// `units`: the model's, which outlive the owner.
  Replicated(const std::vector<ArenaRange>& units, const Arenas& arenas);

  void begin_pass() override;
  UnitMemory need(std::size_t unit) override;
  void write(std::size_t unit) override;
  void done(std::size_t /*unit*/) override {}

  /// Call after the parameters have changed.
  virtual void change() {
    is_rounded_.assign(units_.size(), false);
    has_factors_ = has_factors_ && arenas_.keeps_factors;
  }

 protected:
  std::span<float> rounded(std::size_t unit) const;
  /// Writes a unit's rounded copy, which has memory.
  virtual void round(std::size_t unit);

  const std::vector<ArenaRange>& units_;
  Arenas arenas_;
  std::vector<bool> is_rounded_; ///< Per unit: the rounded copy is up to date.
  bool has_factors_ = false;     ///< Likewise `factors`, of all units.
};

} // namespace trainer
