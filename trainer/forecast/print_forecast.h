// dtrain-trainer --plan: measures, then prints what forecast.h predicts.
#pragma once

#include "trainer/forecast/forecast.h"
#include "trainer/run/run_options.h"
#include "trainer/strategy/ranks.h"

namespace trainer {

/// A rank's own speed: seconds of one step of a model, best of several runs.
double measure_step_seconds(const ModelOptions& model, std::size_t batch_size, Device& device);

/// The link between the ranks of a communicator, from all-reduces of 64 bytes and of 16 MB. The
/// same on every rank.
Link measure_link(Communicator& communicator);

/// The input of a forecast. Links of 0 are measured.
struct ForecastOptions {
  int workers = 1;
  int workers_per_host = 1;
  double bandwidth = 0; ///< Bytes a second.
  double latency = 0;   ///< Seconds.
};

/// As one process, measures a link over TCP within this host; as a rank of several, their links.
/// Rank 0 prints.
void print_forecast(const ForecastOptions& forecast, const RankOptions& ranks,
                    const RunOptions& options);

} // namespace trainer
