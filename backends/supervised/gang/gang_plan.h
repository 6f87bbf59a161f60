// A backend's plan as the supervisor reads it.
#pragma once

#include "backends/job_status.h"
#include "submit/rank_env.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dtrain {

/// A folder or file of the node, at another path for the ranks.
struct Mount {
  std::string source;
  std::string target;
  bool read_only = false;
};

/// A machine that ranks may be started on.
struct HostSlots {
  std::string name;                           ///< As the engine reaches it: "h1", "me@h1".
  int slots = 0;                              ///< Ranks that it has room for; 0: not said.
  std::vector<std::string> gpus = {};         ///< Its GPUs that ranks may have; empty: all …
  std::vector<std::string> without_gpus = {}; ///< … but these.

  bool operator==(const HostSlots&) const = default;
};

/// In a rank's environment: the name of its instance, by which processes that it leaves can be
/// found.
inline constexpr const char* k_instance_variable = "DTRAIN_INSTANCE";

/// What is checked of GPUs before ranks start on them.
enum class GpuCheck : std::uint8_t {
  none,
  driver,  ///< Faults that the driver knows.
  measured ///< Their results and speed, too.
};

struct GangRank {
  std::string instance;        ///< "worker-0"
  std::string role = "worker"; ///< submit/job_roles.h
  std::string host = {};       ///< Host as the channel knows it; empty: this machine.
  int index = 0;               ///< Within the role.
  int gpus = 0;                ///< Requested.
  bool decides = true;         ///< The job lasts until it has ended.
  /// Its own, as CUDA_VISIBLE_DEVICES names them; empty: none; unset: it sees what its node shows.
  std::optional<std::string> devices;
  std::vector<std::string> command; ///< Empty: the gang's.

  int gpus_allocated() const { return devices && !devices->empty() ? gpus : 0; }
};

struct GangPlan {
  JobRef job;
  std::string trainer;
  std::string priority;
  std::vector<HostSlots> hosts;         ///< Hosts that the ranks may be on; none: this one.
  std::vector<GangRank> ranks;          ///< Those with a rank first.
  std::vector<std::string> start_order; ///< Roles; empty: as `ranks` has them.
  int launcher_slots = 0; ///< Of this node in a launcher's host file, or of each worker where the
                          ///< plan has some; 0: there is no launcher.
  std::string torchrun_processes; ///< That torchrun starts in each rank; empty: there is none.
  bool clean_tasks = true; ///< Whether instances that do not decide are ended after those that do.
  std::vector<std::string> command;
  std::vector<Mount> mounts;
  EnvVars env; ///< The user's; they win over all others.
  std::string working_dir;
  std::string interface;   ///< The hosts' network interface that ranks are reached at; empty: any.
  int host_timeout_ms = 0; ///< After which a silent host is lost; 0: the engine's own.
  int max_restarts = 0;
  int min_workers = 0; ///< Fewest workers of an elastic job; 0: it needs all.
  int max_workers = 0;
  int grace_period_ms = 0;
  GpuView gpu_view = GpuView::automatic;
  std::size_t gpus_shared = 0;           ///< Devices that other jobs had when the plan was made.
  GpuCheck gpu_check = GpuCheck::driver; ///< Ranks are not started on those that fail it.
  int running_timeout_ms = 0;            ///< 0: none.
  std::int64_t log_limit = 0;            ///< Largest log of an instance, in bytes; 0: no limit.
  int ttl_ms = -1;                       ///< How long the record is kept; -1: forever.
  std::vector<std::string> labels;

  /// A worker that only holds a host's slots and GPUs: its launcher starts what runs there.
  bool is_held(const GangRank& rank) const { return launcher_slots > 0 && rank.role == "worker"; }
};

/// Of the rank of that name; the number of ranks where none has it.
std::size_t position_of(const std::vector<GangRank>& ranks, const std::string& instance);

/// The last worker, where `fewest` are left without it; otherwise the end.
std::vector<GangRank>::iterator spare_worker(std::vector<GangRank>& ranks, int fewest);

/// A launcher and TensorBoard run beside the first of the others, whose host they share.
bool takes_slot(const GangRank& rank);
void place_beside_first(std::vector<GangRank>& ranks);

/// Has the ranks take the hosts that are not among `lost`, with so many workers fewer. False, and
/// nothing changed, where they would be fewer than an elastic job needs.
bool leave_out_hosts(GangPlan& plan, const std::set<std::string>& lost);

/// The same without the place of one rank alone: the last worker goes, which is returned; empty,
/// and nothing changed, where the workers would be too few.
std::string leave_out_place(GangPlan& plan, const std::string& instance);

/// The status of a rank that has not been started.
inline InstanceStatus pending_instance(const GangRank& rank, bool is_chief, std::string node) {
  InstanceStatus instance;
  instance.name = rank.instance;
  instance.is_chief = is_chief;
  instance.gpus = rank.gpus;
  instance.node = std::move(node);
  return instance;
}

/// Sums up the GPUs that ranks ask for and have.
inline void count_gpus(const GangPlan& plan, JobSummary& job) {
  job.gpus_requested = job.gpus_allocated = 0;
  for (const auto& rank : plan.ranks) {
    job.gpus_requested += rank.gpus;
    job.gpus_allocated += rank.gpus_allocated();
  }
}

} // namespace dtrain
