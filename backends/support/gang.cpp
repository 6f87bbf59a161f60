#include "backends/support/gang.h"

#include "backends/support/files.h"
#include "backends/support/process.h"
#include "backends/support/time_text.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrain {

namespace {

using Clock = PollLoop::Clock;
using std::chrono::milliseconds;

constexpr std::size_t k_block_bytes = 65536;   ///< A pipe's capacity.
constexpr milliseconds k_record_interval{100}; ///< Between records of single ranks' ends.
constexpr milliseconds k_kill_interval{20};    ///< KILL is repeated for what forked meanwhile.
constexpr std::size_t k_record_bytes = 65536;  ///< Room for the last record, cause included …
constexpr std::size_t k_instance_bytes = 512;  ///< … and each instance.
constexpr std::size_t k_token_bytes = 16;
constexpr const char* k_visible_devices = "CUDA_VISIBLE_DEVICES";

Fd open_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) {
    sigaddset(&set, signal);
  }
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) {
    throw EngineError(fmt::format("cannot watch processes: {}", errno_text()));
  }
  return fd;
}

} // namespace

std::string ending_text(const std::optional<int>& exit_code, const std::optional<int>& signal) {
  if (signal) {
    const char* name = sigabbrev_np(*signal);
    return name != nullptr ? fmt::format("signal {} (SIG{})", *signal, name)
                           : fmt::format("signal {}", *signal);
  }
  return fmt::format("exit code {}", exit_code.value_or(0));
}

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  if (getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
    throw EngineError(fmt::format("no random numbers: {}", errno_text()));
  }
  std::string text;
  for (const auto byte : raw) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

Gang::Gang(const GangPlan& plan, Channel& channel, const JobFolder& folder, JobRecord& record,
           Fd guard)
    : plan_(plan), channel_(channel), folder_(folder), record_(record), guard_(std::move(guard)),
      signals_(open_signals()), ranks_(plan.ranks.size()), token_(random_hex(k_token_bytes)),
      block_(k_block_bytes) {
  folder_.reserve_last_record(k_record_bytes + k_instance_bytes * plan_.ranks.size());
  loop_.add(signals_.get(), [this] { on_signal(); });
  if (guard_) {
    loop_.add(guard_.get(), [this] {
      loop_.remove(guard_.get());
      record_.status.cause = job_failure(record_.status.node, "the job's guard process was killed");
      stop(record_.status.cause->message);
    });
  }
}

JobStatus Gang::initial_status(const GangPlan& plan, const Channel& channel) {
  const auto count = static_cast<int>(plan.ranks.size());
  JobStatus status;
  status.name = plan.job.name;
  status.namespace_name = plan.job.namespace_name;
  status.trainer = plan.trainer;
  status.priority = plan.priority;
  status.phase = Phase::pending;
  status.created = time_now();
  status.gpus_requested = count * plan.gpus_requested;
  status.gpus_allocated = count * plan.gpus_allocated;
  status.node = channel.node(0);
  for (int rank = 0; rank < count; ++rank) {
    InstanceStatus instance;
    instance.name = plan.ranks[static_cast<std::size_t>(rank)].instance;
    instance.is_chief = rank == 0;
    instance.gpus = plan.gpus_requested;
    instance.node = channel.node(rank);
    status.instances.push_back(std::move(instance));
  }
  return status;
}

void Gang::run() {
  auto& status = record_.status;
  bool succeeded = run_once();
  while (!succeeded && !stopping_ && status.restarts < plan_.max_restarts) {
    ++status.restarts;
    succeeded = run_once();
  }
  status.phase = succeeded ? Phase::succeeded : Phase::failed;
  status.ended = time_now();
  if (succeeded) {
    status.reason =
        log_error_ == 0 ? "" : fmt::format("log lines were lost: {}", errno_text(log_error_));
  }
  folder_.set_last_record(record_);
}

/// True where every rank exited with 0 and nobody asked for the end.
bool Gang::run_once() {
  auto& status = record_.status;
  state_ = State::running;
  end_deadline_ = partial_deadline_ = write_deadline_ = Clock::time_point::max();
  status.cause.reset();
  status.reason.clear();
  try {
    start_ranks();
  } catch (const Error& error) {
    status.cause = job_failure(status.node, error.what());
    status.reason = error.what();
    end(State::terminating);
  }
  write_record();
  reap(); // Nothing may have been started.
  while (state_ != State::ended) {
    loop_.wait(next_deadline());
    advance();
  }
  finish_logs();
  return !status.cause && !stopping_;
}

void Gang::start_ranks() {
  auto& status = record_.status;
  auto place = channel_.place(plan_);
  place.job_name = plan_.job.name;
  place.namespace_name = plan_.job.namespace_name;
  place.job_uid = status.uid;
  place.job_token = token_;
  place.restart_count = status.restarts;
  place.max_restarts = plan_.max_restarts;
  place.hostfile_path = fmt::format("{}/{}", folder_.path(), k_hostfile);
  folder_.write(k_hostfile, hostfile_text(place));
  for (auto& instance : status.instances) {
    instance.phase = Phase::pending;
    instance.pid = 0;
    instance.started = instance.ended = 0;
    instance.exit_code.reset();
    instance.signal.reset();
  }
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto rank = static_cast<int>(i);
    ranks_[i].log =
        std::make_unique<LogFile>(folder_.create_log(plan_.ranks[i].instance, status.restarts));
    auto env = rank_env(place, rank);
    if (plan_.ranks[i].devices) {
      env.emplace_back(k_visible_devices, *plan_.ranks[i].devices);
    }
    env.insert(env.end(), plan_.env.begin(), plan_.env.end());
    auto process = channel_.start(rank, {plan_.command, env, plan_.working_dir});
    ranks_[i].pid = process.pid;
    add_pipe(i, Stream::out, std::move(process.out));
    add_pipe(i, Stream::err, std::move(process.err));
    auto& instance = status.instances[i];
    instance.pid = process.pid;
    instance.phase = Phase::running;
    instance.started = time_now();
  }
  status.phase = Phase::running;
  if (status.started == 0) {
    status.started = status.instances.front().started;
  }
}

void Gang::add_pipe(std::size_t rank, Stream stream, Fd pipe) {
  loop_.add(pipe.get(), [this, rank, stream] { read_pipe(rank, stream); });
  ranks_[rank].pipes[static_cast<std::size_t>(stream)] = std::move(pipe);
}

/// One block, so that a rank that prints without end leaves the others their turn.
void Gang::read_pipe(std::size_t rank, Stream stream) {
  auto& pipe = ranks_[rank].pipes[static_cast<std::size_t>(stream)];
  const auto count = read(pipe.get(), block_.data(), block_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (count <= 0) {
    loop_.remove(pipe.get());
    pipe.reset();
    return;
  }
  auto& log = *ranks_[rank].log;
  log.write(stream, {block_.data(), static_cast<std::size_t>(count)}, time_now());
  if (log.has_partial() && partial_deadline_ == Clock::time_point::max()) {
    partial_deadline_ = Clock::now() + LogFile::k_partial_delay;
  }
  if (log.first_error() != 0) {
    log_error_ = log.first_error();
  }
}

/// Reads what was in the pipes at this moment: a process that the rank left may go on printing.
void Gang::drain(std::size_t rank) {
  for (const auto stream : {Stream::out, Stream::err}) {
    const auto& pipe = ranks_[rank].pipes[static_cast<std::size_t>(stream)];
    int available = 0;
    if (pipe && ioctl(pipe.get(), FIONREAD, &available) == 0) {
      for (; available > 0 && pipe; available -= static_cast<int>(k_block_bytes)) {
        read_pipe(rank, stream);
      }
    }
  }
}

void Gang::on_signal() {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else {
      stop("stopped on request");
    }
  }
}

void Gang::reap() {
  while (true) {
    int wait_status = 0;
    const auto pid = waitpid(-1, &wait_status, WNOHANG);
    if (pid == 0) {
      break;
    }
    if (pid < 0) {
      if (errno == ECHILD) {
        state_ = State::ended; // Nor has any of our descendants: as a subreaper we'd have them.
      }
      break;
    }
    const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                    [&](const Rank& rank) { return rank.pid == pid; });
    if (found != ranks_.end()) {
      found->pid = 0;
      rank_ended(static_cast<std::size_t>(found - ranks_.begin()), wait_status);
    }
  }
  if (state_ == State::running && running_pids().empty()) {
    end(State::terminating); // What they left.
  }
}

void Gang::rank_ended(std::size_t rank, int wait_status) {
  auto& status = record_.status;
  auto& instance = status.instances[rank];
  drain(rank);
  instance.ended = time_now();
  if (WIFSIGNALED(wait_status)) {
    instance.signal = WTERMSIG(wait_status);
  } else {
    instance.exit_code = WEXITSTATUS(wait_status);
  }
  const bool failed = instance.exit_code != 0;
  instance.phase = failed ? Phase::failed : Phase::succeeded;
  if (!dirty_) {
    dirty_ = true;
    write_deadline_ = Clock::now() + k_record_interval;
  }
  if (!failed || status.cause || stopping_) {
    return;
  }
  FailureCause cause;
  cause.instance = instance.name;
  cause.rank = static_cast<int>(rank);
  cause.node = instance.node;
  cause.exit_code = instance.exit_code;
  cause.signal = instance.signal;
  cause.last_stderr = ranks_[rank].log->last_stderr();
  cause.message = fmt::format("{} (rank {}) on {} ended with {}", instance.name, rank,
                              instance.node, ending_text(instance.exit_code, instance.signal));
  status.reason = cause.message;
  status.cause = std::move(cause);
  end(State::terminating);
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

void Gang::end(State state) {
  state_ = state;
  const bool kill = state == State::killing;
  end_deadline_ = Clock::now() + (kill ? k_kill_interval : milliseconds(plan_.grace_period_ms));
  channel_.signal(running_pids(), kill ? SIGKILL : SIGTERM);
}

void Gang::advance() {
  const auto now = Clock::now();
  if (now >= end_deadline_ && state_ != State::ended) {
    end(State::killing);
    reap();
  }
  if (now >= partial_deadline_) {
    flush_partials();
  }
  if (now >= write_deadline_) {
    write_record();
  }
}

void Gang::flush_partials() {
  partial_deadline_ = Clock::time_point::max();
  for (auto& rank : ranks_) {
    if (rank.log && rank.log->has_partial()) {
      rank.log->flush_partial(time_now());
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

void Gang::finish_logs() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    auto& rank = ranks_[i];
    if (!rank.log) {
      continue;
    }
    drain(i);
    for (auto& pipe : rank.pipes) {
      if (pipe) {
        loop_.remove(pipe.get());
        pipe.reset();
      }
    }
    rank.log->finish(time_now());
    if (rank.log->first_error() != 0) {
      log_error_ = rank.log->first_error();
    }
    rank.log.reset();
  }
}

std::vector<pid_t> Gang::running_pids() const {
  std::vector<pid_t> pids;
  for (const auto& rank : ranks_) {
    if (rank.pid != 0) {
      pids.push_back(rank.pid);
    }
  }
  return pids;
}

Clock::time_point Gang::next_deadline() const {
  return std::min({end_deadline_, write_deadline_, partial_deadline_});
}

} // namespace dtrain
