// The owner (nn/parameter_owner.h) of parameters of which a rank has all. Where the model computes
// in 16 bits, each unit is rounded when it is first needed after it has changed, or on a GPU that
// multiplies in bf16 all of them when a pass begins after they have.
#pragma once

#include <span>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/optim/precision.h"

namespace trainer {

/// Where a model's parameters and gradients are, in the device's memory.
struct Arenas {
  std::span<float> parameters;
  std::span<float> gradients = {}; ///< Empty: for evaluate() alone.
  Precision precision = Precision::fp32;
  std::span<float> rounded = {}; ///< What the model computes with, where it is not fp32.
  /// UnitMemory::rounded of all parameters, of this device's memory; null: there is none.
  Bf16Value* factors = nullptr;
  Device* device = nullptr;
};

class Replicated : public ParameterOwner {
 public:
  /// `units`: of the model, which outlives it.
  Replicated(const std::vector<ArenaRange>& units, const Arenas& arenas);

  void begin_pass() override;
  UnitMemory need(std::size_t unit) override;
  void done(std::size_t /*unit*/) override {}

  /// The parameters are others now.
  virtual void change() {
    is_rounded_.assign(units_.size(), false);
    has_factors_ = false;
  }

 protected:
  std::span<float> rounded(std::size_t unit) const;

  const std::vector<ArenaRange>& units_;
  Arenas arenas_;
  std::vector<bool> is_rounded_; ///< Units, as their parameters are.
  bool has_factors_ = false;     ///< Likewise, of all units.
};

} // namespace trainer
