// Resources of hosts and usage of ranks, for `check`, `top node` and `top job`.
#pragma once

#include "backends/job_status.h"
#include "backends/supervised/gang/gang_plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::ssh {

struct SurveyedHost {
  std::string name;
  std::string lack; ///< Why it cannot be used; empty: it can.
  std::string address;
  int slots = 0; ///< Given by the user; 0: not given.
  int ranks = 0; ///< The user's, of all jobs that run there.
  int gpus = 0;
  int gpus_free = 0;
  double cpus = 0;
  double cpus_used = 0;
  std::int64_t memory = 0; ///< Bytes.
  std::int64_t memory_free = 0;
  std::vector<std::string> gpu_faults; ///< One line each.
};

/// In the order of the hosts. `interface`: the one whose address is wanted; empty: the address that
/// ssh uses. `asks_health`: of their GPUs, which takes a moment.
std::vector<SurveyedHost> survey_hosts(const std::vector<HostSlots>& hosts,
                                       const std::string& interface, bool asks_health = false);

/// "10.0.0.2: 3 of 4 slots free, 2 of 4 GPUs free"
std::string host_text(const SurveyedHost& host);

/// Usage of a job's running instances: over its supervisor's connections, or, if it has none on
/// this machine, over one ssh per host.
std::vector<InstanceUsage> survey_ranks(int job_folder, const std::string& job_uid,
                                        const std::vector<InstanceStatus>& instances);

/// Why a host whose clock is so many seconds ahead of ours cannot be used; empty: it can.
std::string clock_excuse(std::int64_t ahead);

} // namespace dtrain::ssh
