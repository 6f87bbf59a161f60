// Forward and backward of a batch, in passes of so many rows whose gradients add up. During the
// last backward the gradients become final from the arena's start on, and a callback reports how
// many are.
#pragma once

#include <functional>

#include "trainer/device/device.h"
#include "trainer/models/model.h"
#include "trainer/nn/parameter_owner.h"

namespace trainer {

/// During a pass it stands between the model and its owner of parameters, to report final
/// gradients.
class Passes : private ParameterOwner {
 public:
  /// Called when the first `count` gradients of the arena are final; `count` only grows in a batch.
  using Final = std::function<void(std::size_t count)>;
  /// Called when the model does not read the first `count` parameters any more in this batch.
  using Release = std::function<void(std::size_t count)>;

  /// `granularity`: see ParameterOwner. `is_replayed`: a pass runs as one CUDA graph, and `final`
  /// and `release` are not called. Model and device outlive the Passes.
  Passes(Model& model, Device& device, std::size_t rows_at_once, std::size_t granularity,
         bool is_replayed, Final final, Release release);

  std::size_t rows_at_once() const { return rows_at_once_; }

  /// Puts on the device's stream what computes the gradients of `*factor` times the summed loss, in
  /// the owner's memory, and adds the batch's score to `*score`. `behind` may put more kernels
  /// there, which become part of the last pass.
  void run(const Batch& batch, const float* factor, ParameterOwner& owner, Score* score,
           const std::function<void()>& behind);

 private:
  UnitMemory need(std::size_t unit) override { return owner_->need(unit); }
  void write(std::size_t unit) override { owner_->write(unit); }
  void done(std::size_t unit) override;
  void final(std::size_t count) override;
  std::size_t granularity() const override { return is_last_ ? granularity_ : SIZE_MAX; }

  Model& model_;
  Device& device_;
  std::size_t rows_at_once_;
  std::size_t granularity_;
  bool is_replayed_;
  Final final_;
  Release release_;
  ParameterOwner* owner_ = nullptr;
  bool is_last_ = false;     ///< The batch's last pass, in which gradients become final.
  std::size_t is_final_ = 0; ///< So many of them are.
};

} // namespace trainer
