// dtrain-trainer --print-plan: what this job's ranks would send, and how.
#pragma once

#include "trainer/run/run_options.h"
#include "trainer/strategy/ranks.h"

namespace trainer {

/// As a rank of the job: connects, trains for one step on synthetic images, and rank 0 prints the
/// packs of that step, each one's route and bytes, and the route of every size.
void print_routes(const RankOptions& ranks, const RunOptions& options);

} // namespace trainer
