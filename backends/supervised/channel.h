// How a supervisor's processes are started and signalled, on this machine or on other hosts.
#pragma once

#include "backends/supervised/gang_plan.h"
#include "backends/support/os/fd.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace dtrain {

/// One rank's process as its channel starts it.
struct RankCommand {
  const std::vector<std::string>& argv;
  const EnvVars& env; ///< On top of what the node has.
  const std::string& working_dir;
  const std::vector<Mount>& mounts;
  const std::string& workspace; ///< An empty folder, for the mounts.
};

/// A child of this process: the rank itself, or what stands for it here. Its exit is the rank's.
struct RankProcess {
  pid_t pid = 0;
  Fd out; ///< Non-blocking ends of its pipes.
  Fd err;
};

class Channel {
 public:
  virtual ~Channel() = default;

  /// Reserves ports and says where each rank will run; what the last call reserved is given back.
  virtual GangPlace place(const GangPlan& plan) = 0;

  /// Reserves a port for one rank more.
  virtual RankPlace place_one(const GangRank& rank) = 0;

  /// Sees to it that no other job is given the ranks' devices, and lets go of those that it held
  /// and no rank has.
  virtual void hold_devices(const GangPlan& plan) = 0;

  /// The host's name as people know it, for NODE.
  virtual std::string node(int rank) const = 0;

  /// A program that cannot be run is a rank that exits with 126 or 127 and says so on its stderr.
  /// Throws EngineError where there is no process to be had.
  virtual RankProcess start(int rank, const RankCommand& command) = 0;

  /// Signals every process of the gang: those of `running` (not yet waited for) and all below them,
  /// and whatever other ranks left behind.
  virtual void signal(const std::vector<pid_t>& running, int signal) = 0;

  /// Kills what a rank that has been waited for left running: a GPU or a port is another's now.
  virtual void end_leftovers(pid_t rank, const std::string& instance) = 0;

  /// Signals one rank, not yet waited for, and all below it.
  virtual void signal_rank(pid_t rank, int signal) = 0;
};

} // namespace dtrain
