// The contract between launcher and program: the environment of every rank.
//
// Written here, read in trainer/cluster, documented in dtrain-environment(7). Terms:
//   rank        0 … world_size-1, one process each of the ranked roles (submit/job_roles.h)
//   node        a host; ranks on it count their own local_rank from 0
//   slots       ranks that a node holds
//   host file   one line per node, "HOST slots=N" (the form of DeepSpeed and Open MPI)
//   view        which of its node's GPUs a rank sees (submit/gpu_view.h). A rank that sees only its
//               own is told that it is alone on its node, as a Pod is: LOCAL_RANK 0 of 1
#pragma once

#include "submit/gpu_view.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrain {

/// Where one rank runs and may listen.
struct RankPlace {
  std::string role = "worker"; ///< TF_CONFIG's task type.
  int index = 0;               ///< TF_CONFIG's task index, within the role.
  std::string host;            ///< Name or address that the other ranks reach.
  int port = 0;                ///< Reserved for this rank (TF_CONFIG's port).
  /// Its own devices, as CUDA_VISIBLE_DEVICES names them; unset: whatever its node shows it.
  std::optional<std::vector<std::string>> gpus = {};
};

/// What the ranks of a gang are told. Ranks of one node are adjacent; instances without a rank
/// (parameter servers, evaluator, launcher) come last.
struct GangPlace {
  std::string job_name;
  std::string namespace_name;
  std::string job_uid;   ///< Unique a submission.
  std::string job_token; ///< Secret that the ranks prove to one another.
  int restart_count = 0;
  int max_restarts = 0;
  int min_workers = 0;       ///< In an elastic job; 0: not elastic.
  int max_workers = 0;       ///< 0: no bound.
  std::string master_addr;   ///< Rank 0's host.
  int master_port = 0;       ///< Reserved for rank 0's rendezvous.
  std::string hostfile_path; ///< Path of the file with hostfile_text(), the same on every node.
  int launcher_slots = 0;    ///< With a launcher: slots of each of its hosts; else 0.
  /// Hosts where the launcher starts processes; a host named N times in a row holds N times as
  /// many.
  std::vector<std::string> launcher_hosts;
  std::string torchrun_nproc; ///< Processes that torchrun is to start; empty: none.
  GpuView gpu_view = GpuView::automatic;
  std::vector<RankPlace> ranks;
};

using EnvVars = std::vector<std::pair<std::string, std::string>>;

/// The variables of one process, `rank` counting through `ranks`:
///   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, GROUP_WORLD_SIZE,
///   TORCHELASTIC_*                                torchrun's, for ranks only
///   PET_*                                         torchrun's own flags, with torchrun_nproc
///   MASTER_ADDR, MASTER_PORT, ROLE_*
///   TF_CONFIG                                     TensorFlow's, but for a launcher
///   CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER       if it is known what the rank has
///   DTRAIN_HOSTFILE, DLTS_HOSTFILE, OMPI_MCA_orte_default_hostfile,
///   PRTE_MCA_prte_default_hostfile                if hostfile_path is set
///   DTRAIN_JOB_NAME, _NAMESPACE, _UID, _TOKEN, DTRAIN_RESTART_COUNT
///   DTRAIN_MIN_WORKERS, DTRAIN_MAX_WORKERS        of an elastic job, if set
///   PYTHONUNBUFFERED
EnvVars rank_env(const GangPlace& gang, int rank);

/// TF_CONFIG as compact JSON with sorted keys. A master is TensorFlow's chief; an evaluator stands
/// outside the cluster.
std::string tf_config(const GangPlace& gang, int rank);

/// "HOST slots=N" a node, in rank order; with a launcher, its hosts.
std::string hostfile_text(const GangPlace& gang);

} // namespace dtrain
