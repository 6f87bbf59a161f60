// Which strategy trains a job: what its cluster says, or --strategy, which has to fit it.
#pragma once

#include <string>

namespace trainer {

enum class Strategy { mirrored, multi_worker, parameter_server };

/// What a job consists of, as its environment says.
struct JobShape {
  std::string source = "none"; ///< Of what follows: as Cluster::source.
  int workers = 1;
  int servers = 0;
  bool is_elastic = false;
};

/// `asked`: auto, mirrored, multi-worker or parameter-server. Throws UsageError where the job is
/// none of that strategy's, saying both.
Strategy choose_strategy(const std::string& asked, const JobShape& job);

std::string strategy_name(Strategy strategy); ///< "multi-worker"

} // namespace trainer
