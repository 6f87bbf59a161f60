// How the processes of a gang are started, signalled and waited for, on this machine or on other
// hosts.
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

/// The channel's name for a process that it started, never reused; 0: none.
using RankId = std::int64_t;

/// One rank's process as its channel starts it.
struct RankCommand {
  int rank = 0;
  std::vector<std::string> argv;
  EnvVars env; ///< Added to the node's environment.
  const std::string& working_dir;
  const std::vector<Mount>& mounts;
  std::string workspace;       ///< An empty folder, for the mounts.
  const std::string& hostfile; ///< Contents of the file at the gang's hostfile_path.
};

struct RankProcess {
  RankId id = 0;
  std::int64_t pid = 0; ///< On its node, for people; 0: not known.
  Fd out; ///< Non-blocking ends of its pipes; if there are none, on_output() gets its output.
  Fd err;
};

/// How a process ended; if neither is set, its host was lost and nobody can tell.
struct RankEnding {
  RankId id = 0;
  std::optional<int> exit_code = {};
  std::optional<int> signal = {};
  std::string loss = {}; ///< Why it was lost, where the channel knows: "Connection refused".

  bool is_loss() const { return !exit_code && !signal; }
};

/// Thrown by a channel that waits for a host, if something else must be done for the gang first
/// (Channel::on_wait).
struct WaitStopped : EngineError {
  WaitStopped() : EngineError("broken off") {}
};

class Channel {
 public:
  virtual ~Channel() = default;

  /// `stops`: asked while a call waits for a host; once it is true the call throws WaitStopped, as
  /// though it had not been made.
  virtual void on_wait(const std::function<bool()>& /*stops*/) {}

  /// Reserves ports and decides where each rank will run, and with which devices; releases what the
  /// last call reserved. Throws EngineError if a rank would have a faulty device.
  virtual GangPlace place(const GangPlan& plan) = 0;

  /// Before an elastic gang is started: takes hosts that cannot be used any more, and workers for
  /// which there are no devices, out of its plan, and says so; empty: all can, or left_out() says.
  /// Throws EngineError where too few are left.
  virtual std::string leave_out_lost(GangPlan& /*plan*/) { return ""; }

  /// Before the restart of a single failed rank: claims devices for it, and writes them to its
  /// place. Throws EngineError if that is impossible, and WaitStopped as move() does.
  virtual void prepare_restart(const GangRank& /*rank*/, RankPlace& /*place*/) {}

  /// For a worker whose host is lost: assigns another host with room, with devices; returns nothing
  /// if there is none. Throws WaitStopped, also once other ranks have ended.
  virtual std::optional<RankPlace> move(GangRank& /*rank*/) { return std::nullopt; }

  /// Lets go of the devices of a rank that has ended and will not be started again in this run.
  virtual void free_devices(RankId /*ended*/, const std::string& /*instance*/) {}

  /// Reserves a port for one rank more.
  virtual RankPlace place_one(const GangRank& rank) = 0;

  /// Takes the ranks' devices; says in the plan which, and which ranks an elastic job starts with.
  /// False where other jobs have taken some that were free when the plan was made.
  virtual bool claim_devices(GangPlan& plan) = 0;

  /// Sees to it that no other job is given the ranks' devices, and lets go of those that it held
  /// and no rank has.
  virtual void hold_devices(const GangPlan& plan) = 0;

  /// Faulty devices replaced since the last call, for people; empty: none.
  virtual std::string left_out() { return ""; }

  /// Where the ranks will run, for people; call once their devices are claimed.
  virtual std::string where() const = 0;

  /// The host's name as people know it, for NODE.
  virtual std::string node(const GangRank& rank) const = 0;

  /// Receives the output of ranks whose processes have no pipes here, before their ends.
  using OutputSink = std::function<void(RankId, Stream, std::string_view)>;
  virtual void on_output(const OutputSink& /*sink*/) {}

  using CommandOf = std::function<RankCommand(std::size_t)>;
  using Started = std::function<void(std::size_t, RankProcess)>;

  /// Starts `count` processes, asking for each command when it needs it, and reports each. A
  /// program that cannot be run is a rank that exits with 126 or 127 and says so on its stderr.
  /// Throws EngineError if no process can be created; those reported keep running.
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

  /// Signals every process of the gang and all below them, and leftovers of earlier ranks.
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
