// A training run from start to end, of ranks that are fixed or come and go.
#pragma once

#include <optional>

#include "trainer/data/locate.h"
#include "trainer/elastic/membership.h"
#include "trainer/monitor/outputs.h"
#include "trainer/run/run_options.h"
#include "trainer/strategy/ranks.h"

namespace trainer {

struct TrainJob {
  RankOptions ranks;
  std::optional<ElasticLimits> elastic; ///< Of one device a worker.
  DataOptions data;
  RunOptions run;
  OutputOptions outputs;
};

/// Throws what went wrong.
void train(const TrainJob& job);

} // namespace trainer
