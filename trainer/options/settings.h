// What each part of the program takes, made of the command line and the environment once, by main.
// All throw UsageError naming the flag that is wrong, contradicts another, or would do nothing.
#pragma once

#include "trainer/forecast/print_forecast.h"
#include "trainer/options/options.h"
#include "trainer/run/train.h"
#include "trainer/strategy/parameter_server/task.h"

namespace trainer {

RunOptions run_options(const TrainerOptions& options);
/// Whether workers come and go.
bool is_elastic(const TrainerOptions& options, const Cluster& cluster);
DataOptions data_options(const TrainerOptions& options);
OutputOptions output_options(const TrainerOptions& options);
CommOptions comm_options(const TrainerOptions& options);
ForecastOptions forecast_options(const TrainerOptions& options);

/// This process' ranks; `cluster` says nothing of parameter servers.
RankOptions rank_options(const TrainerOptions& options, const Cluster& cluster);

TrainJob train_job(const TrainerOptions& options, const Cluster& cluster);
PsJob ps_job(const TrainerOptions& options, const PsTask& task);

/// What only a job with parameter servers knows.
void refuse_server_options(const TrainerOptions& options);

} // namespace trainer
