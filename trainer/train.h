// A training run from start to end.
#pragma once

#include "trainer/options.h"

namespace trainer {

/// Trains as `options` say, as the rank that the environment says. Throws what went wrong.
void train(const TrainerOptions& options);

} // namespace trainer
