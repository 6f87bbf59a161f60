#include "backends/supervised/supervise.h"

#include "backends/supervised/gang/gang.h"
#include "backends/supervised/gang/plan_text.h"
#include "backends/supervised/store/job_store.h"
#include "backends/supervised/store/job_view.h"
#include "backends/supervised/store/saved_environment.h"
#include "backends/support/bucket/bucket_cache.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/os/cgroup.h"
#include "backends/support/os/files.h"
#include "backends/support/os/process.h"
#include "backends/support/os/random.h"
#include "backends/support/os/split_at_nul.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>

namespace dtrain {

namespace {

constexpr std::size_t k_uid_bytes = 8;
constexpr timespec k_sweep_interval{0, 10'000'000};
constexpr const char* k_without_group = "; without it, a daemon that unsets DTRAIN_JOB_UID "
                                        "survives if the job's supervisors are killed";
constexpr int k_finished = 0;
constexpr int k_gave_up = 1;

/// The gang's, and that of its processes' ends.
sigset_t supervisor_signals() {
  auto set = gang_signals();
  sigaddset(&set, SIGCHLD);
  return set;
}

struct Assignment {
  std::string job_path;
  std::string staged_path;
  Fd answer;
  MakeChannel make_channel;
};

/// Before the others, which override them.
void add_secrets(const std::string& text, EnvVars& env) {
  EnvVars secrets;
  for (const auto& variable : split_at_nul(text)) {
    const auto equals = std::min(variable.find('='), variable.size());
    secrets.emplace_back(variable.substr(0, equals),
                         variable.substr(std::min(equals + 1, variable.size())));
  }
  env.insert(env.begin(), secrets.begin(), secrets.end());
}

GangPlan read_plan(const JobFolder& folder, BucketUse& buckets) {
  auto plan = read_gang_plan(folder.read(k_plan_file).value_or(""));
  add_secrets(folder.read(k_secrets_file).value_or(""), plan.env);
  for (auto& mount : plan.mounts) {
    mount.source = buckets.hold(mount.source);
  }
  return plan;
}

/// Makes the job that is suspended this process's. False where it is another's by now, or none.
bool take_over(const JobStore& store, const JobFolder& folder, const JobRef& job,
               JobRecord& record) {
  const FolderLock lock(folder);
  const auto before = folder.record();
  if (!before || before->status.phase != Phase::suspended || !store.is_current(folder, job)) {
    return false;
  }
  auto& status = record.status;
  status.uid = before->status.uid;
  status.created = before->status.created;
  status.started = before->status.started;
  status.restarts = before->status.restarts;
  folder.set_record(record);
  unlinkat(folder.fd(), k_environment_file, 0);
  return true;
}

/// Whether the submitter has gone, by Ctrl-C for example, before hearing that the job exists.
bool is_unheard(int answer) {
  pollfd end{answer, 0, 0};
  return poll(&end, 1, 0) > 0 && (end.revents & (POLLERR | POLLHUP)) != 0;
}

/// Says that the job is there, and waits until who asked for it knows.
bool is_heard(int answer, const std::string& text) {
  char byte = 0;
  ssize_t count = -1;
  if (write_all(answer, text) && shutdown(answer, SHUT_WR) == 0) {
    do {
      count = read(answer, &byte, 1);
    } while (count < 0 && errno == EINTR);
  }
  return count == 1;
}

/// Takes the job and runs it to its end. Throws where it cannot take it.
void run_supervisor(Assignment& assignment, const JobFolder& staged, const rlimit& limit,
                    ProcessId guard, const std::string& cgroup) {
  Fd guard_end = open_process(guard);
  if (!guard_end || getppid() != guard.pid) {
    throw EngineError("the job's guard process was killed");
  }
  BucketUse buckets; // All its runs use the data of the first.
  auto plan = read_plan(staged, buckets);
  const auto store = JobStore::of(assignment.job_path);
  const auto before = staged.record(); // Of a resumed job.
  const auto uid = before ? before->status.uid : random_hex(k_uid_bytes);
  const auto channel = assignment.make_channel({limit, uid, cgroup, staged.fd(), !before});
  if (!channel->claim_devices(plan)) {
    write_all(assignment.answer.get(), k_devices_taken);
    return;
  }
  if (is_unheard(assignment.answer.get())) {
    return;
  }
  JobRecord record;
  record.status = Gang::initial_status(plan, *channel);
  record.status.uid = uid;
  record.owner.machine = this_machine();
  record.owner.guard = guard;
  record.owner.supervisor = this_process();
  record.owner.grace_period_ms = plan.grace_period_ms;
  record.owner.cgroup = cgroup;
  JobFolder folder(Fd(fcntl(staged.fd(), F_DUPFD_CLOEXEC, 0)), staged.path());
  Gang gang(
      plan, [&] { return read_plan(folder, buckets); }, *channel, folder, record,
      std::move(guard_end));
  bool taken = false;
  const bool is_new = assignment.staged_path != assignment.job_path;
  if (is_new) {
    folder.set_record(record);
    taken = store.publish(folder, plan.job);
  } else {
    taken = take_over(store, folder, plan.job, record);
  }
  if (!taken) {
    write_all(assignment.answer.get(), k_name_in_use);
    return;
  }
  if (!is_heard(assignment.answer.get(), fmt::format("{}{}", k_taken, channel->where())) &&
      is_new) {
    store.remove(folder, plan.job);
    return;
  }
  assignment.answer.reset();
  gang.run();
}

int supervisor(Assignment& assignment, const JobFolder& staged, const rlimit& limit,
               ProcessId guard, const std::string& cgroup) {
  try {
    run_supervisor(assignment, staged, limit, guard, cgroup);
    return k_finished;
  } catch (const std::exception& error) {
    write_all(assignment.answer.get(), error.what());
    fmt::print(stderr, "{} dtrain: {}\n", time_text(time_now()), error.what());
    return k_gave_up;
  }
}

/// The supervisor is gone: ends all that it left, which are our descendants now.
void sweep() {
  const auto set = supervisor_signals();
  while (true) {
    for (const auto& process : descendants(getpid())) {
      signal_process(process.id, SIGKILL);
    }
    pid_t reaped = 0;
    do {
      reaped = waitpid(-1, nullptr, WNOHANG);
    } while (reaped > 0);
    if (reaped < 0 && errno == ECHILD) {
      return;
    }
    sigtimedwait(&set, nullptr, &k_sweep_interval);
  }
}

/// Says in the record what became of the supervisor, where it could not itself.
void record_loss(const JobFolder& folder, const std::string& reason) {
  auto record = folder.record();
  if (!record || !needs_supervisor(record->status.phase) || record->owner.guard != this_process()) {
    return;
  }
  auto& status = record->status;
  status.phase = Phase::failed;
  status.ended = time_now();
  status.reason = reason;
  status.cause = job_failure(status.node, reason);
  for (auto& instance : status.instances) {
    if (instance.phase == Phase::running) {
      instance.phase = Phase::failed;
      instance.ended = status.ended;
      instance.signal = SIGKILL;
    }
  }
  folder.set_last_record(*record);
}

int guard(pid_t supervisor_pid, const JobFolder& folder, const std::string& job_path) {
  const auto set = supervisor_signals();
  int wait_status = 0;
  while (true) {
    const auto pid = waitpid(supervisor_pid, &wait_status, WNOHANG);
    if (pid == supervisor_pid || (pid < 0 && errno != EINTR)) {
      break;
    }
    const int signal = sigwaitinfo(&set, nullptr);
    if (signal > 0 && signal != SIGCHLD) {
      kill(supervisor_pid, signal); // Not yet waited for, so its pid cannot be reused.
    }
  }
  sweep();
  if (WIFSIGNALED(wait_status)) {
    record_loss(folder, fmt::format("the job's supervisor was killed by {}",
                                    ending_text(std::nullopt, WTERMSIG(wait_status))));
  } else if (WEXITSTATUS(wait_status) != k_finished) {
    record_loss(folder,
                fmt::format("the job's supervisor failed: see {}/{}", job_path, k_supervisor_log));
  }
  return k_finished;
}

/// Detaches from the terminal and from the shell's open files.
void detach(const JobFolder& folder, int answer) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  fcntl(answer, F_SETFD, FD_CLOEXEC);
  const auto first = static_cast<unsigned>(STDERR_FILENO + 1);
  const auto kept = static_cast<unsigned>(answer);
  for (const auto& [from, to] : {std::pair(first, kept - 1), std::pair(kept + 1, UINT_MAX)}) {
    static_cast<void>(from <= to && close_range(from, to, CLOSE_RANGE_CLOEXEC));
  }
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const Fd log(
      openat(folder.fd(), k_supervisor_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  dup2(null.get(), STDIN_FILENO);
  dup2(null.get(), STDOUT_FILENO);
  dup2(log ? log.get() : null.get(), STDERR_FILENO);
}

} // namespace

int supervise_main(const std::vector<std::string>& args, MakeChannel make_channel) {
  constexpr std::size_t k_arguments = 3;
  int answer = -1;
  if (args.size() != k_arguments ||
      std::from_chars(args[2].data(), args[2].data() + args[2].size(), answer).ec != std::errc() ||
      answer <= STDERR_FILENO) {
    throw UsageError("supervise is internal and started by submit: see dtrain submit --help");
  }
  Assignment assignment{args[0], args[1], Fd(answer), make_channel};
  const JobFolder folder(open_private_folder(assignment.staged_path, false),
                         assignment.staged_path);
  detach(folder, answer);
  std::error_code no_matter;
  std::filesystem::current_path("/", no_matter); // So that it keeps no folder busy.
  if (const auto text = folder.read(k_environment_file)) {
    set_environment(*text);
  }

  reset_signals();
  const auto set = supervisor_signals();
  sigprocmask(SIG_SETMASK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const auto limit = raise_file_limit(); // Four descriptors a rank.

  const auto self = this_process();
  std::string problem;
  const auto cgroup = Cgroup::make(fmt::format("dtrain-{}-{}", self.pid, self.start_time), problem);
  if (!cgroup && !problem.empty()) {
    fmt::print(stderr, "{} dtrain: {}{}\n", time_text(time_now()), problem, k_without_group);
  }
  const pid_t pid = cgroup ? cgroup->fork() : fork();
  if (pid == 0) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    _exit(supervisor(assignment, folder, limit, self, cgroup ? cgroup->path() : ""));
  }
  if (pid < 0) {
    write_all(answer, fmt::format("cannot start a process: {}", errno_text()));
    return k_gave_up;
  }
  assignment.answer.reset();
  const int status = guard(pid, folder, assignment.job_path);
  if (cgroup) {
    cgroup->remove();
  }
  return status;
}

} // namespace dtrain
