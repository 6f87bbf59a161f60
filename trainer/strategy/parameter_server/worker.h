// One worker of a job with parameter servers: its model, on the client's arenas, and its batches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/models/model.h"
#include "trainer/nn/outcomes.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/parameter_server/coordinator_link.h"
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

  std::unique_ptr<CoordinatorLink> meet_chief() const;
  std::int64_t connect();
  ParameterClient& client() { return client_; }
  Model& model() { return *model_; }
  /// Of the values that the servers gave last.
  ParameterOwner& owner();

  /// Trains from step `first` until `after_step` says no more; told the values that followed it.
  template <typename AfterStep>
  void train(std::int64_t first, std::int64_t last, const AfterStep& after_step) {
    const auto batch_size = static_cast<std::uint64_t>(job_.batch_size());
    std::int64_t step = first;
    while (step < last) {
      // One pass, unless servers that restart send the job to another step.
      Loader loader(
          data_.train, device_,
          {static_cast<std::size_t>(batch_size), index_, workers_,
           static_cast<std::uint64_t>(job_.run.seed),
           static_cast<std::uint64_t>(step) * batch_size * static_cast<std::uint64_t>(workers_),
           last - step});
      for (const Batch& batch : loader) {
        const Score score = compute(batch, step);
        const std::int64_t before = step;
        const ParameterClient::Values values = client_.step(step, score, batch.rows, clipping_);
        step = values.step;
        input_seconds_ = loaded_before_ + loader.seconds();
        if (step > before) {
          after_step(step, values.totals);
        }
        if (step != before + 1) {
          break;
        }
      }
      loaded_before_ += loader.seconds();
    }
  }

  /// Trains on what the chief hands out, beginning with the values of `step`.
  void train_for(CoordinatorLink& chief, std::int64_t step);

  double input_seconds() const { return input_seconds_; }

 private:
  /// The batch's gradients and score. Throws Error where its loss, or the norm by which they are to
  /// be clipped, is no number.
  Score compute(const Batch& batch, std::int64_t step);

  const PsJob& job_;
  const Dataset& data_;
  Device& device_;
  Outcomes outcomes_;
  int index_;
  int workers_;
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
  double loaded_before_ = 0;
};

} // namespace trainer
