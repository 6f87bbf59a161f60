// Which strategy trains a job: by its cluster, or by --strategy, which has to fit the cluster.
#pragma once

#include <string>

namespace trainer {

enum class Strategy { mirrored, multi_worker, parameter_server };

/// A job's processes, as the environment describes them.
struct JobShape {
  std::string source = "none"; ///< Where the numbers come from, see Cluster::source.
  int workers = 1;
  int servers = 0;
  bool is_elastic = false;
};

/// `asked`: auto, mirrored, multi-worker or parameter-server. Throws UsageError naming both if the
/// strategy cannot train such a job.
Strategy choose_strategy(const std::string& asked, const JobShape& job);

std::string strategy_name(Strategy strategy); ///< "multi-worker"

} // namespace trainer
