// dtrain-trainer --plan: measures, then prints what forecast.h predicts.
#pragma once

#include "trainer/forecast/forecast.h"
#include "trainer/options.h"

namespace trainer {

/// A rank's own speed: seconds of one step of a model, best of several runs.
double measure_step_seconds(const ModelOptions& model, std::size_t batch_size, Device& device);

/// The link between the ranks of a communicator, from all-reduces of 64 bytes and of 16 MB. The
/// same on every rank.
Link measure_link(Communicator& communicator);

/// As one process, measures a link over TCP within this host; as a rank of several, theirs. Rank 0
/// prints.
void print_forecast(const TrainerOptions& options);

} // namespace trainer
