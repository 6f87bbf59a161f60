// What a training run takes from the command line, however many ranks carry it out.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/models/model.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/training_step.h"

namespace trainer {

struct RunOptions {
  ModelOptions model; ///< The data say how large its images are.
  OptimizerOptions optimizer;
  /// Its length, and what goes by updates and is 0, are the run's to say.
  LearningRate learning_rate{.peak = 3e-3, .schedule = LearningRate::Schedule::cosine};
  StepOptions step{
      .buckets = 0,
      .rows_at_once =
          64}; ///< rows_at_once: a rank's batch, of which accumulation_steps make one step.
  std::int64_t accumulation_steps = 1;
  std::int64_t global_batch = 0; ///< That elastic ranks keep, however many they are; 0: none.
  Precision precision = Precision::fp32;
  MatmulPrecision matmul_precision = MatmulPrecision::highest;
  int zero_stage = 0;   ///< strategy/shards.h
  Offload offload = {}; ///< Likewise.
  std::int64_t epochs = 12;
  std::int64_t steps = 0; ///< 0: as many as the epochs take.
  bool drop_remainder = false;
  std::int64_t seed = 0;
  bool split_by_speed = false;
  std::int64_t log_every = 100;
  std::string checkpoint_dir; ///< Empty: none are saved.
  std::int64_t checkpoint_every = 0;
  std::int64_t keep = 2;               ///< Checkpoints.
  std::string save_on_signal = "usr1"; ///< requeue.h
  bool resume = false;
  std::string initial_weights; ///< checkpoint/hugging_face.h; empty: random ones.
  std::string export_folder;   ///< Likewise; empty: none is written.
  std::string timeline;        ///< Empty: none is written.

  std::int64_t batch_size() const { return static_cast<std::int64_t>(step.rows_at_once); }
};

} // namespace trainer
