// How fast this machine trains: the same model, data shape and loop as the peers' scripts.
#pragma once

#include "trainer/run/run_options.h"
#include "trainer/strategy/ranks.h"

namespace trainer {

/// 60,000 random samples. Five windows of `seconds`; prints samples/s over all ranks,
/// best and median: "mlp dtrain VERSION hidden=128 world=1 batch/replica=64 best N samples/s median
/// N (…)".
void benchmark_training(const RankOptions& ranks, const RunOptions& options, double seconds);

/// GFLOP/s of the model's products on one core, best of many.
void benchmark_gemm();

} // namespace trainer
