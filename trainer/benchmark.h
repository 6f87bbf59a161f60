// How fast this machine trains: the same model, data shape and loop as the peers' scripts.
#pragma once

#include "trainer/options.h"

namespace trainer {

/// 60,000 random images of 784 bytes, Adam, `options.batch_size` a rank, as the rank that the
/// environment says. Five windows of options.benchmark seconds; prints samples/s over all ranks,
/// best and median: "mlp dtrain VERSION hidden=128 world=1 batch/replica=64 best N samples/s median
/// N (…)".
void benchmark_training(const TrainerOptions& options);

/// GFLOP/s of the model's products on one core, best of many.
void benchmark_gemm();

} // namespace trainer
