// One worker of a job with parameter servers: its replica, on the client's arenas, its batches, and
// the step of strategy/training_step.h with each of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/parameter_server/task.h"
#include "trainer/strategy/training_step.h"

namespace trainer {

/// A line on stdout, seen at once.
void say(const std::string& text);

class PsWorker {
 public:
  /// Meets the servers, and the chief before them where there is one. What it is given must outlive
  /// it.
  PsWorker(const PsJob& job, const Dataset& data, Device& device);

  ParameterClient& client() { return client_; }

  /// Trains to step `last`, and tells `after_step` of each and of the totals that followed it; or
  /// on what the chief hands out, who writes the log.
  void train(std::int64_t last, const std::function<void(std::int64_t, const Score&)>& after_step);

  /// The held-out samples' score, by the values that the servers gave last.
  Score evaluate();

  /// Spent getting batches, and waiting for what follows from them, since the start.
  double input_seconds() const { return training_->seconds_input(); }
  double waiting_seconds() const { return training_->exchange().seconds_exposed(); }

 private:
  const PsJob& job_;
  const Dataset& data_;
  std::unique_ptr<Communicator> alone_; ///< Peers are the servers' to know.
  Replica replica_;
  ParameterClient client_;
  std::optional<TrainingStep> training_; ///< Once it is known who shares memory.
};

} // namespace trainer
