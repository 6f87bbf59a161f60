// The supervisor of engines that have none (local, SSH): starts the ranks of a job, watches them,
// writes their logs and the job's record, and ends them together.
//
//   start     every rank, with its variables (submit/rank_env.h)
//   run       until all that decide have ended: SUCCEEDED where every one exited with 0; the others
//             (parameter servers, an evaluator) then have a while to end by themselves
//   fail      the first rank that ends otherwise is the cause; the gang gets TERM, and KILL after
//             the grace period
//   elastic   with min_workers a worker that fails is started anew by itself, within max_restarts;
//             beyond them the others go on without it while they are enough
//   restart   the whole gang, up to max_restarts times, with new ports and new log files
//   sweep     whatever the ranks left running (daemons too) is ended before the job ends
//
// One thread and one poll loop. The process must be a child subreaper with SIGCHLD, SIGTERM and
// SIGINT blocked and no children of its own: every child there is belongs to the gang.
#pragma once

#include "backends/backend.h"
#include "backends/support/fd.h"
#include "backends/support/job_store.h"
#include "backends/support/log_file.h"
#include "backends/support/poll_loop.h"
#include "submit/job_roles.h"
#include "submit/rank_env.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dtrain {

/// A folder or file of the node, at another path for the ranks.
struct Mount {
  std::string source;
  std::string target;
  bool read_only = false;
};

struct GangRank {
  std::string instance;               ///< "worker-0"
  std::string role = "worker";        ///< submit/job_roles.h
  int index = 0;                      ///< Within the role.
  int gpus = 0;                       ///< Requested.
  bool decides = true;                ///< The job lasts until it has ended.
  std::optional<std::string> devices; ///< CUDA_VISIBLE_DEVICES; unset: as inherited.
  std::vector<std::string> command;   ///< Empty: the gang's.

  int gpus_allocated() const { return devices && !devices->empty() ? gpus : 0; }
};

/// What is to be started: a plan of a backend, read.
struct GangPlan {
  JobRef job;
  std::string trainer;
  std::string priority;
  std::vector<GangRank> ranks;          ///< Those with a rank first.
  std::vector<std::string> start_order; ///< Roles; empty: as `ranks` has them.
  int launcher_slots = 0; ///< Of this node in a launcher's host file; 0: there is no launcher.
  std::string torchrun_processes; ///< That torchrun starts in each rank; empty: there is none.
  bool clean_tasks = true;        ///< What does not decide is ended after those that do.
  std::vector<std::string> command;
  std::vector<Mount> mounts;
  EnvVars env; ///< The user's; they win over all others.
  std::string working_dir;
  int max_restarts = 0;
  int min_workers = 0; ///< That an elastic job needs; 0: it needs all.
  int max_workers = 0;
  int grace_period_ms = 0;
  std::size_t gpus_shared = 0; ///< Devices that other jobs had when the plan was made.
  int running_timeout_ms = 0;  ///< 0: none.
  int ttl_ms = -1;             ///< For which the record is kept; -1: for ever.
  std::vector<std::string> labels;
};

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

/// How processes are started and signalled, here or on other hosts.
class Channel {
 public:
  virtual ~Channel() = default;

  /// Reserves ports and says where each rank will run; what the last call reserved is given back.
  virtual GangPlace place(const GangPlan& plan) = 0;

  /// The host's name as people know it, for NODE.
  virtual std::string node(int rank) const = 0;

  /// A program that cannot be run is a rank that exits with 126 or 127 and says so on its stderr.
  /// Throws EngineError where there is no process to be had.
  virtual RankProcess start(int rank, const RankCommand& command) = 0;

  /// Signals every process of the gang: those of `running` (not yet waited for) and all below them,
  /// and whatever other ranks left behind.
  virtual void signal(const std::vector<pid_t>& running, int signal) = 0;
};

class Gang {
 public:
  /// `guard`: a pidfd; when that process ends, the gang is ended. `record` says who looks after the
  /// job, and is kept up to date in `folder`.
  Gang(const GangPlan& plan, Channel& channel, const JobFolder& folder, JobRecord& record,
       Fd guard);

  /// The record of a gang not yet started: PENDING, every instance too.
  static JobStatus initial_status(const GangPlan& plan, const Channel& channel);

  /// Carries out the plan; the record is final after it, and no process is left.
  void run();

 private:
  enum class State { running, terminating, killing, ended };

  struct Rank {
    pid_t pid = 0; ///< 0: not started, or waited for.
    std::array<Fd, 2> pipes;
    std::unique_ptr<LogFile> log;
  };

  bool run_once();
  void start_ranks();
  void start_rank(std::size_t rank, const GangPlace& place);
  std::vector<std::size_t> start_order() const;
  bool deciders_ended() const;
  bool helpers_run() const;
  void wind_down();
  void add_pipe(std::size_t rank, Stream stream, Fd pipe);
  void read_pipe(std::size_t rank, Stream stream);
  void drain(std::size_t rank);
  void reap();
  void rank_ended(std::size_t rank, int wait_status);
  bool goes_on_without(std::size_t rank, const std::string& ending);
  bool starts_anew(std::size_t rank, const std::string& ending);
  void on_signal();
  void stop(const std::string& reason);
  void end(State state);
  void advance();
  void flush_partials();
  void write_record();
  void finish_logs();
  std::vector<pid_t> running_pids() const;
  PollLoop::Clock::time_point next_deadline() const;

  const GangPlan& plan_;
  Channel& channel_;
  const JobFolder& folder_;
  JobRecord& record_;
  Fd guard_;
  Fd signals_;
  PollLoop loop_;
  std::vector<Rank> ranks_;
  GangPlace place_; ///< Of the run that is on.
  int anew_ = 0;    ///< Workers that were started anew by themselves.
  std::string token_;
  std::vector<char> block_;
  State state_ = State::running;
  bool winding_down_ = false; ///< All that decide have succeeded.
  bool evaluating_ = false;   ///< Winding down waits for an evaluator.
  bool stopping_ = false;     ///< Asked to end: no restart, no cause.
  bool dirty_ = false;        ///< The record differs from what is written.
  int log_error_ = 0;
  PollLoop::Clock::time_point timeout_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point end_deadline_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point write_deadline_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point partial_deadline_ = PollLoop::Clock::time_point::max();
};

/// The scripts in `bin` that stand before a launcher's own programs in PATH.
void write_launcher_tools(const JobFolder& folder);

/// "exit code 3", "signal 9 (SIGKILL)"
std::string ending_text(const std::optional<int>& exit_code, const std::optional<int>& signal);

/// `bytes` random bytes in hexadecimal.
std::string random_hex(std::size_t bytes);

} // namespace dtrain
