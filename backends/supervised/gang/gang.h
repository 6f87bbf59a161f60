// The supervisor of engines that have none (local, SSH): starts the ranks of a job, watches them,
// writes their logs and the job's record, and ends them together.
//
//   start     every rank, with its variables (submit/rank_env.h)
//   run       until all that decide have ended: SUCCEEDED where every one exited with 0; the others
//             (parameter servers, an evaluator) then have a while to end by themselves
//   fail      the first rank that ends otherwise is the cause; the gang gets TERM, and KILL after
//             the grace period. Where the chief's success is the job's, it has the grace period
//             to succeed after another worker failed
//   elastic   with min_workers a worker that fails is restarted by itself, within max_restarts;
//             beyond them, or where its host is lost, the others go on without it while they are
//             enough; what fails once a host is lost has the gang restarted on those that are left
//   restart   the whole gang, up to max_restarts times, with new ports and new log files; what
//   fails
//             at its start again and again waits longer each time
//   suspend   every rank is ended as in a failure, and the record says SUSPENDED. Another
//             supervisor goes on with it, or none ever does
//   scale     the plan is read again: new workers are started beside those that run, the last are
//             ended alone
//   sweep     whatever the ranks left running (daemons too) is ended before the job ends
//
// One thread and one poll loop; gang_signals() must be blocked. Processes are the channel's: the
// gang knows them by its ids, and is told how each has ended.
//
// Signals: SIGTERM or SIGINT ends the job, SIGTSTP suspends it, SIGHUP has the plan read again.
#pragma once

#include "backends/supervised/gang/backoff.h"
#include "backends/supervised/gang/channel.h"
#include "backends/supervised/gang/gang_plan.h"
#include "backends/supervised/gang/rank_output.h"
#include "backends/supervised/store/job_store.h"
#include "backends/support/os/poll_loop.h"

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The signals that the process must have blocked.
sigset_t gang_signals();

/// The reason of a job that is suspended.
inline constexpr const char* k_suspended = "suspended";

class Gang {
 public:
  using ReadPlan = std::function<GangPlan()>;

  /// `guard`: a pidfd; when that process ends, the gang is ended. `record` says who looks after the
  /// job, and is kept up to date in `folder`. `read_plan`: the plan as it is wanted now.
  Gang(GangPlan plan, ReadPlan read_plan, Channel& channel, const JobFolder& folder,
       JobRecord& record, Fd guard);

  /// The record of a gang not yet started: PENDING, every instance too.
  static JobStatus initial_status(const GangPlan& plan, const Channel& channel);

  /// Carries out the plan; the record is final (or says that the job is suspended) after it, and no
  /// process is left.
  void run();

 private:
  enum class State { running, terminating, killing, ended };

  struct Rank {
    RankId process = 0; ///< 0: not started, or ended.
    std::unique_ptr<RankOutput> output = {};
    RankId last_process = 0;
    std::string instance = {}; ///< Name of a worker that leaves.
    Backoff backoff = {};
    PollLoop::Clock::time_point began = {};
    PollLoop::Clock::time_point restart_at =
        PollLoop::Clock::time_point::max(); ///< When it is to start.
    std::optional<RankEnding> failed = {};  ///< How it ended, if it is to be restarted.
    bool is_pausing = false;                ///< The place of its restart is known.

    /// Its host is lost, and no other has been found yet.
    bool is_moving() const { return failed && failed->is_loss() && !is_pausing; }
    /// It runs, or will.
    bool is_wanted() const {
      return process != 0 || restart_at != PollLoop::Clock::time_point::max();
    }
  };

  bool run_once();
  bool await_restart();
  void start_ranks();
  std::unique_ptr<RankOutput> make_output(const GangRank& planned);
  void start_some(const std::vector<std::size_t>& ranks, const GangPlace& place);
  RankCommand command_of(std::size_t rank, const GangPlace& place, const std::string& hostfile);
  std::vector<std::size_t> start_order() const;
  std::vector<std::string> launcher_hosts() const;
  void show_hosts();
  bool deciders_ended() const;
  bool is_waited_for(std::size_t rank) const;
  bool helpers_run() const;
  void end_helpers();
  void take_output(RankId process, Stream stream, std::string_view bytes);
  void reap();
  void note_suspects();
  void tell_ranks_of(const std::string& host, const std::string& what);
  void rank_ended(std::size_t rank, const RankEnding& ending, bool by_itself);
  void rank_failed(std::size_t rank, const RankEnding& ending);
  std::string text_of(std::size_t rank, const RankEnding& ending,
                      const std::string& more = "") const;
  void fail(FailureCause cause);
  bool goes_on_without(std::size_t rank, const RankEnding& ending);
  bool moves(std::size_t rank);
  bool any_is_moving() const;
  bool may_restart() const;
  bool restarts(std::size_t rank);
  bool start_again(std::size_t rank);
  void start_at(std::size_t rank, PollLoop::Clock::time_point when);
  bool has_succeeded_peer(std::size_t rank) const;
  int wanted_workers() const;
  void start_those_due();
  void apply_plan();
  void take_ranks();
  void leave_out_lost();
  void follow_plan();
  std::vector<std::size_t> add_ranks(const GangPlan& next, std::string& refused);
  void add_rank(std::size_t position, const GangRank& planned);
  void remove_rank(std::size_t position);
  void scaled_away_ended(std::size_t leaver);
  void on_signal();
  void suspend();
  void record_suspended();
  bool has_news() const;
  void stop(const std::string& reason);
  void end(State state);
  void advance();
  void write_what_is_due();
  void expect_partial();
  void flush_partials();
  void write_record();
  void finish_output();
  bool any_runs() const;
  PollLoop::Clock::time_point next_deadline() const;

  GangPlan plan_;
  ReadPlan read_plan_;
  Channel& channel_;
  const JobFolder& folder_;
  JobRecord& record_;
  Fd guard_;
  Fd signals_;
  PollLoop loop_;
  std::vector<Rank> ranks_;
  std::vector<Rank> scaled_away_; ///< Workers that were scaled away and have not ended.
  GangPlace place_;               ///< In the current run.
  int restarted_ = 0;             ///< Workers that were restarted by themselves.
  Backoff backoff_;
  bool host_lost_ = false;         ///< In this run.
  std::set<std::string> suspects_; ///< Hosts that do not answer.
  std::string reason_;             ///< The job's reason before …
  std::string reason_of_suspects_; ///< … and has for it.
  bool has_run_ = false;           ///< The last run got as far as to start ranks.
  PollLoop::Clock::time_point run_began_;
  std::string token_;
  std::vector<char> block_;
  State state_ = State::running;
  std::optional<FailureCause>
      worker_failure_; ///< Of a worker; it is the job's failure unless the chief succeeds.
  bool deciders_succeeded_ = false; ///< All ranks that decide have succeeded.
  bool evaluating_ = false;         ///< Winding down waits for an evaluator.
  bool stopping_ = false;           ///< Asked to end: no restart, no cause.
  bool pausing_ = false;            ///< Between two runs.
  bool suspending_ = false;         ///< Asked to end and to be kept.
  bool plan_changed_ = false;       ///< And has not been read again yet.
  bool dirty_ = false;              ///< The record differs from the one on disk.
  int log_error_ = 0;
  PollLoop::Clock::time_point timeout_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point end_deadline_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point restart_deadline_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point chief_deadline_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point leave_deadline_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point write_deadline_ = PollLoop::Clock::time_point::max();
  PollLoop::Clock::time_point partial_deadline_ = PollLoop::Clock::time_point::max();
};

} // namespace dtrain
