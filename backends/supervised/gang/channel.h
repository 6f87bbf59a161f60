// How a gang's processes are started, signalled and waited for, on this machine or on other hosts.
#pragma once

#include "backends/supervised/gang/gang_plan.h"
#include "backends/support/logs/log_file.h"
#include "backends/support/os/fd.h"
#include "submit/errors.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// What the channel calls a process that it has started, and no other ever; 0: none.
using RankId = std::int64_t;

/// One rank's process as its channel starts it.
struct RankCommand {
  int rank = 0;
  std::vector<std::string> argv;
  EnvVars env; ///< On top of what the node has.
  const std::string& working_dir;
  const std::vector<Mount>& mounts;
  std::string workspace;       ///< An empty folder, for the mounts.
  const std::string& hostfile; ///< What is to be found at the gang's hostfile_path.
};

struct RankProcess {
  RankId id = 0;
  std::int64_t pid = 0; ///< On its node, for people; 0: not known.
  Fd out;               ///< Non-blocking ends of its pipes; none: on_output() has what it prints.
  Fd err;
};

/// How a process ended; with neither, its host was lost and nobody can tell.
struct RankEnding {
  RankId id = 0;
  std::optional<int> exit_code = {};
  std::optional<int> signal = {};
  std::string loss = {}; ///< Why it was lost, where the channel knows: "Connection refused".

  bool is_loss() const { return !exit_code && !signal; }
};

/// By a channel that waits for a host, once somebody else does for the gang (Channel::on_wait).
struct WaitStopped : EngineError {
  WaitStopped() : EngineError("broken off") {}
};

class Channel {
 public:
  virtual ~Channel() = default;

  /// `stops`: asked while a call waits for a host; once it is true the call throws WaitStopped, as
  /// though it had not been made.
  virtual void on_wait(const std::function<bool()>& /*stops*/) {}

  /// Reserves ports and says where each rank will run, and with which devices; what the last call
  /// reserved is given back. Throws EngineError where a rank would have a faulty device.
  virtual GangPlace place(const GangPlan& plan) = 0;

  /// Before an elastic gang is started once more: takes hosts that cannot be used any more out of
  /// its plan, and says so; empty: all can. Throws EngineError where too few are left.
  virtual std::string leave_out_lost(GangPlan& /*plan*/) { return ""; }

  /// Before a rank that has failed is started by itself once more: takes devices for it, and says
  /// in its place which. Throws EngineError where it cannot be, and WaitStopped as move() does.
  virtual void prepare_restart(const GangRank& /*rank*/, RankPlace& /*place*/) {}

  /// For a worker whose host is lost: where another host has room for it, that is its host from now
  /// on, with devices; nothing where none has. Throws WaitStopped also once others have ended.
  virtual std::optional<RankPlace> move(GangRank& /*rank*/) { return std::nullopt; }

  /// Lets go of the devices of a rank that has ended and will not be started again in this run.
  virtual void free_devices(RankId /*ended*/, const std::string& /*instance*/) {}

  /// Reserves a port for one rank more.
  virtual RankPlace place_one(const GangRank& rank) = 0;

  /// Takes the ranks' devices, and says in the plan which, where that is the hosts' to choose.
  /// False where other jobs have taken some that were free when the plan was made.
  virtual bool claim_devices(GangPlan& plan) = 0;

  /// Sees to it that no other job is given the ranks' devices, and lets go of those that it held
  /// and no rank has.
  virtual void hold_devices(const GangPlan& plan) = 0;

  /// The faulty devices whose place others have taken since the last call, for people; empty: none.
  virtual std::string left_out() { return ""; }

  /// Where the ranks will run, for people; once their devices are claimed.
  virtual std::string where() const = 0;

  /// The host's name as people know it, for NODE.
  virtual std::string node(const GangRank& rank) const = 0;

  /// What ranks print whose processes have no pipes here, before their ends.
  using OutputSink = std::function<void(RankId, Stream, std::string_view)>;
  virtual void on_output(const OutputSink& /*sink*/) {}

  using CommandOf = std::function<RankCommand(std::size_t)>;
  using Started = std::function<void(std::size_t, RankProcess)>;

  /// Starts `count` processes, the commands of which it asks for when it needs them, and tells of
  /// each. A program that cannot be run is a rank that exits with 126 or 127 and says so on its
  /// stderr. Throws EngineError where there is no process to be had; those it has told of run.
  virtual void start(std::size_t count, const CommandOf& command, const Started& started) = 0;

  /// A descriptor that can be read when ended() has something new to say.
  virtual int events() const = 0;

  /// The processes that have ended since the last call.
  virtual std::vector<RankEnding> ended() = 0;

  /// The hosts that have not answered for a while, though they may yet.
  virtual std::set<std::string> suspects() const { return {}; }

  /// True where nothing is left of the gang, nor of what its processes started, as of ended().
  virtual bool idle() const = 0;

  /// Has the hostfile_path of all that run show this text.
  virtual void show_hosts(const std::string& /*hostfile*/) {}

  /// Signals every process of the gang and all below them, and whatever other ranks left behind.
  virtual void signal_all(int signal) = 0;

  /// Signals one and all below it; nothing where it has ended.
  virtual void signal(RankId process, int signal) = 0;

  /// Kills what one that has ended left running: a GPU or a port is another's now.
  virtual void end_leftovers(RankId ended, const std::string& instance) = 0;

  /// Nothing is started any more: lets go of whatever is held, before the job is said to have
  /// ended.
  virtual void close() {}
};

} // namespace dtrain
