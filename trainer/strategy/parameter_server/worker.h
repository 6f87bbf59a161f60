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
  /// Connects to the chief, if there is one, and to the servers. The arguments must outlive it.
  PsWorker(const PsJob& job, const Dataset& data, Device& device);

  ParameterClient& client() { return client_; }

  /// Trains to step `last`, and tells `after_step` of each and of the totals that followed it; or
  /// on what the chief hands out, who writes the log.
  void train(std::int64_t last, const std::function<void(std::int64_t, const Score&)>& after_step);

  /// The score of the held-out samples with the last values from the servers.
  Score evaluate();

  /// Seconds spent on getting batches, and on waiting for the answers to them, since the start.
  double input_seconds() const { return training_->clock().seconds_input(); }
  double waiting_seconds() const { return training_->clock().seconds_exposed(); }

 private:
  const PsJob& job_;
  const Dataset& data_;
  std::unique_ptr<Communicator>
      alone_; ///< A communicator of one: workers meet only through servers.
  Replica replica_;
  ParameterClient client_;
  std::optional<TrainingStep> training_; ///< Set once it is known which servers share memory.
};

} // namespace trainer
