// What hosts have to give and what ranks there use, for `check`, `top node` and `top job`.
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
  int slots = 0; ///< That the user gave it; 0: not said.
  int ranks = 0; ///< The user's, of all jobs that run there.
  int gpus = 0;
  int gpus_free = 0;
  double cpus = 0;
  double cpus_used = 0;
  std::int64_t memory = 0; ///< Bytes.
  std::int64_t memory_free = 0;
};

/// In the order of the hosts. `interface`: whose address is asked for; empty: ssh's.
std::vector<SurveyedHost> survey_hosts(const std::vector<HostSlots>& hosts,
                                       const std::string& interface);

/// "10.0.0.2: 3 of 4 slots free, 2 of 4 GPUs free"
std::string host_text(const SurveyedHost& host);

/// Of the instances of a job that run: over its supervisor's connections, and where it has none on
/// this machine over one ssh a host.
std::vector<InstanceUsage> survey_ranks(int job_folder, const std::string& job_uid,
                                        const std::vector<InstanceStatus>& instances);

/// Why a host whose clock is so many seconds ahead of ours is of no use; empty: it is.
std::string clock_excuse(std::int64_t ahead);

} // namespace dtrain::ssh
