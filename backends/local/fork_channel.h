// Starts ranks as children of the supervisor, on this machine.
#pragma once

#include "backends/support/channel.h"
#include "backends/support/port.h"

#include <sys/resource.h>

#include <string>
#include <vector>

namespace dtrain {

class ForkChannel : public Channel {
 public:
  /// `limit`: the limit of open files that ranks get (the supervisor raises its own).
  explicit ForkChannel(const rlimit& file_limit);

  GangPlace place(const GangPlan& plan) override;
  std::string node(int rank) const override;
  RankProcess start(int rank, const RankCommand& command) override;
  void signal(const std::vector<pid_t>& running, int signal) override;

 private:
  rlimit file_limit_;
  std::string host_;
  std::vector<ReservedPort> ports_; ///< The master's, then one a rank.
};

/// `base` ("KEY=VALUE" each) with `changes` on top, the last of a key winning.
std::vector<std::string> merge_environment(const char* const* base, const EnvVars& changes);

} // namespace dtrain
