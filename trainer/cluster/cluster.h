// The rank, the world size and the address of rank 0, from the launcher's environment.
//
// Sources, first that applies: TF_CONFIG with a cluster; RANK and WORLD_SIZE (torchrun's and
// dtrain's); OMPI_COMM_WORLD_*; SLURM_PROCID and SLURM_NTASKS (when a step has several tasks);
// none: one process. dtrain sets TF_CONFIG and RANK together, and they must agree.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

struct Cluster {
  int rank = 0; ///< 0 … world_size-1
  int world_size = 1;
  int local_rank = 0; ///< Among the ranks of this host.
  int local_world_size = 1;
  int node_rank = 0;
  std::string master_addr; ///< Address of rank 0 for the rendezvous; empty: world_size is 1, or
                           ///< mpirun's ranks agree through MPI where to meet.
  int master_port = 0;
  std::string job_token; ///< Secret shared by the job's ranks; empty: none was given.
  int min_workers = 0;   ///< Elastic from DTRAIN_MIN_WORKERS on; 0: not.
  int max_workers = 0;   ///< DTRAIN_MAX_WORKERS; 0: no bound.
  std::string source;    ///< "TF_CONFIG", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "none"
};

/// Looks a variable up; std::nullopt where it is not set.
using GetEnv = std::function<std::optional<std::string>(const char*)>;

/// Throws ClusterError naming the variable, what is wrong with it and what to do.
Cluster cluster_from_env(const GetEnv& get);
Cluster cluster_from_env();

/// The job's token, for those who start ranks by hand: the file's first line. Throws UsageError
/// where it is too short to keep anyone out, cannot be read, or can be by other users.
std::string read_token_file(const std::string& path);

struct TfConfig {
  struct Job {
    std::string type;                   ///< chief, worker, ps, evaluator
    std::vector<std::string> addresses; ///< host:port
  };
  std::vector<Job> cluster; ///< In TensorFlow's rank order: chief first, then workers.
  std::string task_type;
  int task_index = 0;
};

/// Parses and validates: types, at most one chief and evaluator, no address twice, index in range,
/// every address host:port. Throws ClusterError naming the key.
TfConfig parse_tf_config(const std::string& json);

/// The number by which a task takes its GPU: LOCAL_RANK, or, if unset, the task's number among the
/// chief and workers of its host; 0 for one that is neither.
int local_rank_of(const TfConfig& config, const GetEnv& get);

} // namespace trainer
