#include "backends/supervised/gang/gang.h"

#include "backends/supervised/store/saved_environment.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/os/files.h"
#include "backends/support/os/random.h"
#include "submit/errors.h"
#include "submit/options/duration.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dtrain {

namespace {

using Clock = PollLoop::Clock;
using std::chrono::milliseconds;

constexpr milliseconds k_kill_interval{20}; ///< SIGKILL is repeated for processes forked meanwhile.
constexpr std::size_t k_record_bytes = 65536; ///< Room for the last record, cause included …
constexpr std::size_t k_instance_bytes = 512; ///< … and each instance.
constexpr std::size_t k_token_bytes = 16;

Fd open_signals() {
  const auto set = gang_signals();
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) {
    throw EngineError(fmt::format("cannot wait for signals: {}", errno_text()));
  }
  return fd;
}

} // namespace

sigset_t gang_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGTSTP, SIGHUP}) {
    sigaddset(&set, signal);
  }
  return set;
}

Gang::Gang(GangPlan plan, ReadPlan read_plan, Channel& channel, const JobFolder& folder,
           JobRecord& record, Fd guard)
    : plan_(std::move(plan)), read_plan_(std::move(read_plan)), channel_(channel), folder_(folder),
      record_(record), guard_(std::move(guard)), signals_(open_signals()),
      ranks_(plan_.ranks.size()), token_(random_hex(k_token_bytes)),
      block_(RankOutput::k_block_bytes) {
  folder_.reserve_last_record(k_record_bytes + k_instance_bytes * plan_.ranks.size());
  loop_.add(signals_.get(), [this] { on_signal(); });
  loop_.add(channel_.events(), [this] { reap(); });
  channel_.on_wait([this] {
    write_what_is_due();
    return has_news();
  });
  channel_.on_output([this](RankId process, Stream stream, std::string_view bytes) {
    take_output(process, stream, bytes);
  });
  if (guard_) {
    loop_.add(guard_.get(), [this] {
      loop_.remove(guard_.get());
      record_.status.cause = job_failure(record_.status.node, "the job's guard process was killed");
      stop(record_.status.cause->message);
    });
  }
}

void Gang::take_output(RankId process, Stream stream, std::string_view bytes) {
  for (auto* some : {&ranks_, &scaled_away_}) {
    for (auto& rank : *some) {
      if (rank.process == process && rank.output) {
        rank.output->take(stream, bytes);
        return;
      }
    }
  }
}

void Gang::run() {
  auto& status = record_.status;
  if (plan_.running_timeout_ms > 0) {
    timeout_ = Clock::now() + milliseconds(plan_.running_timeout_ms);
  }
  bool succeeded = run_once();
  while (!succeeded && !stopping_ && !suspending_ &&
         status.restarts + restarted_ < plan_.max_restarts && await_restart()) {
    auto before = status;
    ++status.restarts;
    succeeded = run_once();
    if (!has_run_) { // A full disk: why the job failed, and its logs, are those of the run before.
      if (status.cause && status.cause->message != before.cause->message) {
        before.cause->message += "; it was not restarted: " + status.cause->message;
      }
      before.reason = status.cause ? before.cause->message : status.reason;
      status = std::move(before);
      break;
    }
  }
  channel_.close();
  const bool may_go_on = !status.cause || status.restarts + restarted_ < plan_.max_restarts;
  if (suspending_ && !stopping_ && !succeeded && may_go_on) {
    record_suspended();
    return;
  }
  status.phase = succeeded ? Phase::succeeded : Phase::failed;
  status.ended = time_now();
  if (plan_.ttl_ms >= 0) {
    status.expires = status.ended + std::chrono::nanoseconds(milliseconds(plan_.ttl_ms)).count();
  }
  if (succeeded) {
    status.reason =
        log_error_ == 0 ? "" : fmt::format("log lines were lost: {}", errno_text(log_error_));
  }
  folder_.set_last_record(record_);
}

/// Before a restart: a job that fails at its start must not spin. False where it is not restarted
/// after all.
bool Gang::await_restart() {
  auto& status = record_.status;
  const auto pause = backoff_.pause_after(run_began_);
  if (pause == milliseconds::zero()) {
    return true;
  }
  const auto deadline = Clock::now() + pause;
  status.reason = fmt::format("{}; restart {} of {} in {}", status.reason, status.restarts + 1,
                              plan_.max_restarts, format_duration(pause));
  status.phase = Phase::pending;
  write_record();
  pausing_ = true;
  while (!stopping_ && !suspending_ && Clock::now() < deadline) {
    loop_.wait(std::min(deadline, timeout_));
    if (Clock::now() >= timeout_) {
      status.cause.reset(); // The time limit is what ends the job.
      advance();
    }
  }
  pausing_ = false;
  return !stopping_ && !suspending_;
}

/// True where every rank exited with 0 and nobody asked for the end.
bool Gang::run_once() {
  auto& status = record_.status;
  state_ = State::running;
  has_run_ = false;
  run_began_ = Clock::now();
  deciders_succeeded_ = host_lost_ = false;
  end_deadline_ = partial_deadline_ = write_deadline_ = Clock::time_point::max();
  chief_deadline_ = Clock::time_point::max();
  worker_failure_.reset();
  status.cause.reset();
  status.reason.clear();
  while (!has_run_ && state_ == State::running) {
    try {
      apply_plan();
      leave_out_lost();
      start_ranks();
    } catch (const WaitStopped&) { // Then with another plan, or not at all.
      advance();
      on_signal();
    } catch (const Error& error) {
      status.cause = job_failure(status.node, error.what());
      status.reason = error.what();
      end(State::terminating);
    }
  }
  write_record();
  reap(); // Nothing may have been started.
  while (state_ != State::ended) {
    loop_.wait(next_deadline());
    advance();
  }
  finish_output();
  return !status.cause && !stopping_ && !suspending_;
}

/// While waiting for a host: whether something must be done first.
bool Gang::has_news() const {
  sigset_t pending;
  sigpending(&pending);
  const auto came = [&](int signal) { return sigismember(&pending, signal) == 1; };
  return came(SIGTERM) || came(SIGINT) || came(SIGTSTP) || came(SIGHUP) || Clock::now() >= timeout_;
}

void Gang::on_signal() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGTSTP) {
      suspend();
    } else if (info.ssi_signo == SIGHUP) {
      plan_changed_ = true;
      follow_plan();
    } else {
      stop("stopped on request");
    }
  }
}

void Gang::stop(const std::string& reason) {
  if (!stopping_) {
    stopping_ = true;
    record_.status.reason = reason;
  }
  if (state_ == State::running) {
    end(State::terminating);
  }
}

/// Does nothing if all ranks that decide have succeeded: the job is almost over.
void Gang::suspend() {
  if (deciders_succeeded_ || (state_ == State::ended && !pausing_)) {
    return;
  }
  suspending_ = true;
  if (state_ == State::running) {
    end(State::terminating);
  }
}

void Gang::record_suspended() {
  auto& status = record_.status;
  status.restarts += status.cause ? 1 : 0;
  status.phase = Phase::suspended;
  status.reason = k_suspended;
  status.cause.reset();
  status.tensorboard.clear();
  status.gpus_allocated = 0;
  status.instances.resize(plan_.ranks.size());
  for (std::size_t i = 0; i < plan_.ranks.size(); ++i) {
    status.instances[i] = pending_instance(plan_.ranks[i], i == 0, "");
    status.instances[i].phase = Phase::suspended;
  }
  try {
    folder_.write(k_environment_file, environment_text(environ));
  } catch (const Error&) {
    // A full disk: who resumes the job gives it an environment.
  }
  folder_.set_last_record(record_);
}

void Gang::end(State state) {
  state_ = state;
  restart_deadline_ = Clock::time_point::max();
  for (auto& rank : ranks_) {
    rank.restart_at = Clock::time_point::max();
    rank.failed.reset();
    rank.is_pausing = false;
  }
  const bool kill = state == State::killing;
  end_deadline_ = Clock::now() + (kill ? k_kill_interval : milliseconds(plan_.grace_period_ms));
  channel_.signal_all(kill ? SIGKILL : SIGTERM);
}

void Gang::advance() {
  const auto now = Clock::now();
  if (now >= timeout_) {
    timeout_ = Clock::time_point::max();
    auto& status = record_.status;
    if (!status.cause && !deciders_succeeded_) {
      status.cause = job_failure(
          status.node, fmt::format("the job ran longer than --running-timeout={}",
                                   format_duration(milliseconds(plan_.running_timeout_ms))));
      stop(status.cause->message);
    }
  }
  if (now >= end_deadline_ && state_ != State::ended) {
    // Processes that outlast the ranks are asked to end first.
    end(state_ == State::running ? State::terminating : State::killing);
    reap();
  }
  if (now >= restart_deadline_) {
    start_those_due();
  }
  if (now >= chief_deadline_) {
    chief_deadline_ = Clock::time_point::max();
    if (state_ == State::running && !deciders_succeeded_ && !record_.status.cause) {
      fail(std::move(*worker_failure_));
    }
  }
  if (now >= leave_deadline_) {
    leave_deadline_ = now + k_kill_interval;
    for (const auto& leaver : scaled_away_) {
      channel_.signal(leaver.process, SIGKILL);
    }
  }
  write_what_is_due();
}

void Gang::write_what_is_due() {
  const auto now = Clock::now();
  if (now >= partial_deadline_) {
    flush_partials();
  }
  if (now >= write_deadline_) {
    write_record();
  }
}

/// A part of a line is written where its end does not come soon.
void Gang::expect_partial() {
  if (partial_deadline_ == Clock::time_point::max()) {
    partial_deadline_ = Clock::now() + LogFile::k_partial_delay;
  }
}

void Gang::flush_partials() {
  partial_deadline_ = Clock::time_point::max();
  for (auto* some : {&ranks_, &scaled_away_}) {
    for (auto& rank : *some) {
      if (rank.output && rank.output->log().has_partial()) {
        rank.output->log().flush_partial(time_now());
      }
    }
  }
}

void Gang::write_record() {
  dirty_ = false;
  write_deadline_ = Clock::time_point::max();
  try {
    folder_.set_record(record_);
  } catch (const Error&) {
    // A full disk: the job goes on, and the last record has its room.
  }
}

void Gang::finish_output() {
  scaled_away_.clear();
  for (auto& rank : ranks_) {
    if (rank.output) {
      rank.output->finish();
      log_error_ =
          rank.output->log().first_error() != 0 ? rank.output->log().first_error() : log_error_;
      rank.output.reset();
    }
  }
}

bool Gang::any_runs() const {
  return !scaled_away_.empty() || std::any_of(ranks_.begin(), ranks_.end(),
                                              [](const Rank& rank) { return rank.process != 0; });
}

Clock::time_point Gang::next_deadline() const {
  return std::min({timeout_, end_deadline_, chief_deadline_, restart_deadline_, leave_deadline_,
                   write_deadline_, partial_deadline_});
}

} // namespace dtrain
