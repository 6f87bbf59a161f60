// Starts ranks as children of the supervisor, on this machine.
#pragma once

#include "backends/local/gpu_claims.h"
#include "backends/supervised/channel.h"
#include "backends/support/os/port.h"

#include <sys/resource.h>

#include <map>
#include <string>
#include <vector>

namespace dtrain {

class ForkChannel : public Channel {
 public:
  /// `limit`: the limit of open files that ranks get (the supervisor raises its own). `root`: where
  /// GPUs are claimed (gpu_claims.h), for `user`.
  ForkChannel(const rlimit& file_limit, std::string root, GpuUser user);
  ~ForkChannel() override;
  ForkChannel(const ForkChannel&) = delete;
  ForkChannel& operator=(const ForkChannel&) = delete;

  /// False where other jobs have taken devices that were free when the plan was made.
  bool claim_devices(const GangPlan& plan);

  GangPlace place(const GangPlan& plan) override;
  RankPlace place_one(const GangRank& rank) override;
  void hold_devices(const GangPlan& plan) override;
  std::string node(int rank) const override;
  RankProcess start(int rank, const RankCommand& command) override;
  void signal(const std::vector<pid_t>& running, int signal) override;
  void end_leftovers(pid_t rank, const std::string& instance) override;
  void signal_rank(pid_t rank, int signal) override;

 private:
  rlimit file_limit_;
  std::string root_;
  GpuUser user_;
  std::string host_;
  std::vector<ReservedPort> ports_;  ///< The master's, then one a rank.
  std::map<std::string, Fd> claims_; ///< Of devices.
};

} // namespace dtrain
