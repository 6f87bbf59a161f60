// Forward and backward of a batch, whoever gets its gradients: in passes of so many rows, which add
// up. In the last backward they become final from the arena's start, and who gets them is told so
// while it goes on.
#pragma once

#include <functional>

#include "trainer/device/device.h"
#include "trainer/models/model.h"
#include "trainer/nn/parameter_owner.h"

namespace trainer {

/// In a pass it is the model's owner of parameters: the given one, and tells of what is final.
class Passes : private ParameterOwner {
 public:
  /// Told the first so many gradients of the arena, never fewer than before in a batch.
  using Final = std::function<void(std::size_t count)>;

  /// `granularity`: as ParameterOwner has it. `is_replayed`: a pass' kernels are one graph on the
  /// device, and `final` is told nothing. What it is given outlives it.
  Passes(Model& model, Device& device, std::size_t rows_at_once, std::size_t granularity,
         bool is_replayed, Final final);

  std::size_t rows_at_once() const { return rows_at_once_; }

  /// The gradients of `*factor` times the summed loss are in the owner's memory, or what makes them
  /// is on the device's stream; `*score`, likewise, has the batch's added to it. `behind`: puts
  /// there what follows the last pass, kernels alone, as part of it.
  void run(const Batch& batch, const float* factor, ParameterOwner& owner, Score* score,
           const std::function<void()>& behind);

 private:
  UnitMemory need(std::size_t unit) override { return owner_->need(unit); }
  void done(std::size_t unit) override { owner_->done(unit); }
  void final(std::size_t count) override;
  std::size_t granularity() const override { return is_last_ ? granularity_ : SIZE_MAX; }

  Model& model_;
  Device& device_;
  std::size_t rows_at_once_;
  std::size_t granularity_;
  bool is_replayed_;
  Final final_;
  ParameterOwner* owner_ = nullptr;
  bool is_last_ = false; ///< Of the batch: gradients become final.
};

} // namespace trainer
