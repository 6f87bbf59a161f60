// Starts ranks as children of the supervisor, on this machine.
//
// The process must be a child subreaper with SIGCHLD blocked and no children of its own: every
// child there is belongs to the gang.
#pragma once

#include "backends/local/rank_gpus.h"
#include "backends/supervised/gang/channel.h"
#include "backends/support/os/port.h"

#include <sys/resource.h>

#include <array>
#include <map>
#include <string>
#include <vector>

namespace dtrain {

class ForkChannel : public Channel {
 public:
  /// `limit`: the limit of open files that ranks get (the supervisor raises its own). `user`: for
  /// whom GPUs are claimed (gpu_claims.h).
  ForkChannel(const rlimit& file_limit, GpuUser user);

  bool claim_devices(GangPlan& plan) override { return gpus_.claim(plan); }

  GangPlace place(const GangPlan& plan) override;
  std::string leave_out_lost(GangPlan& plan) override;
  RankPlace place_one(const GangRank& rank) override;
  void hold_devices(const GangPlan& plan) override { gpus_.hold_only(plan); }
  void prepare_restart(const GangRank& rank, RankPlace& place) override;
  void free_devices(RankId ended, const std::string& instance) override;
  std::string left_out() override { return gpus_.take_news(); }
  std::string where() const override { return host_; }
  std::string node(const GangRank& rank) const override;
  void start(std::size_t count, const CommandOf& command, const Started& started) override;
  int events() const override { return children_.get(); }
  std::vector<RankEnding> ended() override;
  bool idle() const override { return idle_; }
  void signal_all(int signal) override;
  void signal(RankId process, int signal) override;
  void end_leftovers(RankId ended, const std::string& instance) override;

 private:
  RankProcess start_one(const RankCommand& command) const;

  rlimit file_limit_;
  RankGpus gpus_;
  std::string host_;
  std::vector<ReservedPort> ports_; ///< The master's, then one a rank.
  std::array<Fd, 2> slots_;         ///< Where a rank's output is while it is started.
  Fd children_;                     ///< SIGCHLD, as a descriptor.
  std::map<pid_t, RankId> running_; ///< Not yet waited for, so that their pids cannot be reused.
  RankId started_ = 0;
  bool idle_ = true;
};

} // namespace dtrain
