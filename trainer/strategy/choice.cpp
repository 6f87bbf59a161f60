#include "trainer/strategy/choice.h"

#include <fmt/format.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

Strategy fitting(const JobShape& job) {
  if (job.servers > 0) {
    return Strategy::parameter_server;
  }
  return job.source == "none" ? Strategy::mirrored : Strategy::multi_worker;
}

std::string counted(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// "TF_CONFIG names 3 workers and 2 parameter servers"
std::string what_there_is(const JobShape& job) {
  if (job.source == "none") {
    return "this is one process, with no cluster variables";
  }
  return fmt::format("{} names {}{}{}", job.source, counted(job.workers, "worker"),
                     job.is_elastic ? " that may come and go" : "",
                     job.servers > 0 ? " and " + counted(job.servers, "parameter server") : "");
}

const char* what_it_takes(Strategy strategy) {
  switch (strategy) {
  case Strategy::mirrored:
    return "trains one process";
  case Strategy::multi_worker:
    return "trains workers that sum their gradients among themselves";
  case Strategy::parameter_server:
    break;
  }
  return "needs parameter servers, cluster.ps in TF_CONFIG";
}

bool fits(Strategy strategy, const JobShape& job) {
  // The one worker of a job is one process, too.
  return strategy == fitting(job) || (strategy == Strategy::mirrored && job.servers == 0 &&
                                      job.workers == 1 && !job.is_elastic);
}

} // namespace

Strategy choose_strategy(const std::string& asked, const JobShape& job) {
  if (asked == "auto") {
    return fitting(job);
  }
  for (const Strategy strategy :
       {Strategy::mirrored, Strategy::multi_worker, Strategy::parameter_server}) {
    if (asked == strategy_name(strategy)) {
      if (!fits(strategy, job)) {
        throw UsageError(fmt::format("--strategy={}: {}, and {}; use auto or {}", asked,
                                     what_it_takes(strategy), what_there_is(job),
                                     strategy_name(fitting(job))));
      }
      return strategy;
    }
  }
  throw UsageError(fmt::format(
      "--strategy={}: must be auto, mirrored, multi-worker or parameter-server", asked));
}

std::string strategy_name(Strategy strategy) {
  switch (strategy) {
  case Strategy::mirrored:
    return "mirrored";
  case Strategy::multi_worker:
    return "multi-worker";
  case Strategy::parameter_server:
    break;
  }
  return "parameter-server";
}

} // namespace trainer
