// One worker of a job with parameter servers: its model, on the client's arenas, and its batches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/models/model.h"
#include "trainer/nn/outcomes.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/parameter_server/task.h"
#include "trainer/strategy/passes.h"
#include "trainer/strategy/replicated.h"

namespace trainer {

/// A line on stdout, seen at once.
void say(const std::string& text);

class PsWorker {
 public:
  /// Connects nothing yet. What it is given must outlive it.
  PsWorker(const PsJob& job, const Dataset& data, Device& device);

  /// Meets the servers, and the chief before them where there is one. The step to begin with.
  std::int64_t connect();
  ParameterClient& client() { return client_; }
  Model& model() { return *model_; }
  /// Of the values that the servers gave last.
  ParameterOwner& owner();

  /// Trains from step `step`, whose values the servers gave last, to step `last`, and tells
  /// `after_step` of each and of the totals that followed it; or on what the chief hands out, who
  /// writes the log.
  void train(std::int64_t step, std::int64_t last,
             const std::function<void(std::int64_t, const Score&)>& after_step);

  double input_seconds() const { return input_seconds_; }

 private:
  /// The batch's gradients and score. Throws Error where its loss, or the norm by which they are to
  /// be clipped, is no number.
  Score compute(const Batch& batch, std::int64_t step);

  const PsJob& job_;
  const Dataset& data_;
  Device& device_;
  Outcomes outcomes_;
  std::unique_ptr<Model> model_;
  ParameterClient client_;
  Buffer parameters_; ///< The model's, where the device cannot compute on the client's.
  Buffer gradients_;
  Replicated owner_;
  std::optional<Passes> passes_; ///< Once it is known who shares memory.
  std::size_t sent_ahead_ = 0;   ///< Gradients of the batch, on their way before it is done.
  Buffer scale_;                 ///< Of a sample's loss.
  float scaled_by_ = 0;
  Buffer squares_; ///< Their sum over the gradients, in float64.
  double clipping_ = 1;
  double input_seconds_ = 0;
};

} // namespace trainer
