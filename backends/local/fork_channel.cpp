#include "backends/local/fork_channel.h"

#include "backends/local/mounts.h"
#include "backends/supervised/store/job_view.h"
#include "backends/support/os/files.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/process.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace dtrain {

namespace {

constexpr const char* k_loopback = "127.0.0.1";
constexpr const char* k_local_host = "localhost";
constexpr int k_no_such_program = 127; ///< Exit codes as in shells …
constexpr int k_not_runnable = 126;    ///< … for what cannot be run.

/// A RankId is the pid, and above it the number of the start: a pid may come again.
constexpr int k_pid_bits = 32;

pid_t pid_of(RankId id) { return static_cast<pid_t>(id & UINT32_MAX); }

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const auto& text : texts) {
    all.push_back(const_cast<char*>(text.c_str()));
  }
  all.push_back(nullptr);
  return all;
}

std::array<Fd, 2> open_slots() {
  std::array<Fd, 2> slots;
  for (auto& slot : slots) {
    slot = Fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!slot) {
      throw EngineError(fmt::format("cannot open /dev/null: {}", errno_text()));
    }
  }
  return slots;
}

Fd watch_children() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) {
    throw EngineError(fmt::format("cannot watch processes: {}", errno_text()));
  }
  return fd;
}

/// Runs in the child, writes to its stderr, and allocates nothing.
[[noreturn]] void fail_child(std::string_view what, const char* name, int error) {
  const char* reason = strerrordesc_np(error);
  for (const std::string_view part :
       {std::string_view("dtrain: "), what, std::string_view(" "), std::string_view(name),
        std::string_view(": "), std::string_view(reason != nullptr ? reason : "error"),
        std::string_view("\n")}) {
    write_all(STDERR_FILENO, part);
  }
  _exit(error == ENOENT ? k_no_such_program : k_not_runnable);
}

/// What a new process needs to become a rank.
struct Birth {
  const RankCommand& command;
  const std::vector<char*>& argv;
  const std::vector<char*>& envp;
  const rlimit& file_limit;
  const std::array<Fd, 2>& outputs; ///< Below all descriptors that there are one of a rank.
  pid_t supervisor;
  bool shares = false; ///< Our memory and descriptors, until exec.
};

/// Runs in the child. While it shares our memory, nothing allocates except what creates mounts, and
/// no descriptor changes before the first call, after which it has its own.
int become_rank(void* given) {
  const auto& [command, argv, envp, file_limit, outputs, supervisor, shares] =
      *static_cast<const Birth*>(given);
  const auto& [out, err] = outputs;
  const auto above = static_cast<unsigned>(std::max(out.get(), err.get())) + 1;
  if (close_range(above, UINT_MAX, CLOSE_RANGE_UNSHARE) != 0 && shares) {
    _exit(k_not_runnable);
  }
  // A session of its own, so that all its processes can be signalled at once; SIGKILL if the
  // supervisor dies.
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) {
    _exit(k_not_runnable);
  }
  dup2(out.get(), STDOUT_FILENO);
  dup2(err.get(), STDERR_FILENO);
  setrlimit(RLIMIT_NOFILE, &file_limit);
  // A shell's background and nohup hand on signals that are ignored.
  for (int signal = 1; signal < NSIG; ++signal) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  try {
    enter_mounts(command.mounts, command.workspace);
  } catch (const Error& error) {
    fail_child("cannot mount the job's data:", error.what(), EPERM);
  }
  if (chdir(command.working_dir.c_str()) != 0) {
    fail_child("cannot enter", command.working_dir.c_str(), errno);
  }
  environ = const_cast<char**>(envp.data()); // The program is looked up in the rank's PATH.
  execvp(argv[0], argv.data());
  fail_child("cannot run", argv[0], errno);
}

/// Shares memory and descriptors until exec: copying and closing thousands of descriptors for each
/// of thousands of ranks would be most of the time that a large gang takes to start. A process with
/// mounts of its own cannot share our memory; old kernels, and containers that allow few system
/// calls, do not support it.
pid_t bear(Birth& birth) {
  static const bool is_allowed = close_range(UINT_MAX, UINT_MAX, CLOSE_RANGE_UNSHARE) == 0;
  birth.shares = is_allowed && birth.command.mounts.empty() && !k_only_fork_is_known;
  if (!birth.shares) {
    const pid_t pid = fork();
    if (pid == 0) {
      become_rank(&birth);
    }
    return pid;
  }
  constexpr std::size_t k_stack = std::size_t{128} << 10U; // execvpe() has a script's argv there.
  std::vector<std::max_align_t> stack(k_stack / sizeof(std::max_align_t) + birth.argv.size());
  return clone(become_rank, stack.data() + stack.size(),
               CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &birth);
}

/// Processes that stayed in its session, and those that left it but kept the instance's name in
/// their environment.
std::vector<ProcessId> left_of(pid_t session, const std::string& instance) {
  const auto mark = fmt::format("{}={}", k_instance_variable, instance);
  std::vector<ProcessId> left;
  for (const auto& process : descendants(getpid())) {
    if (process.session == session || has_variable(process.id.pid, mark)) {
      left.push_back(process.id);
    }
  }
  return left;
}

} // namespace

ForkChannel::ForkChannel(const rlimit& file_limit, GpuUser user)
    : file_limit_(file_limit), gpus_(std::move(user)), host_(host_name()), slots_(open_slots()),
      children_(watch_children()) {}

void ForkChannel::prepare_restart(const GangRank& rank, RankPlace& place) {
  gpus_.hold(rank);
  std::vector<GangRank> alone{rank};
  gpus_.replace_faulty(alone);
  place.gpus = gpus_.of(rank);
}

/// Daemons that the rank left may be at work there until the job ends.
void ForkChannel::free_devices(RankId ended, const std::string& instance) {
  if (gpus_.are_held(instance) && left_of(pid_of(ended), instance).empty()) {
    gpus_.release(instance);
  }
}

std::string ForkChannel::leave_out_lost(GangPlan& plan) {
  gpus_.forget_faults(); // All are asked again.
  gpus_.hold_only(plan);
  gpus_.replace_faulty(plan.ranks, plan.min_workers);
  return "";
}

GangPlace ForkChannel::place(const GangPlan& plan) {
  gpus_.hold_only(plan);       // Ranks that ended in an earlier run have released their devices.
  if (plan.min_workers == 0) { // Else leave_out_lost() has done it.
    auto ranks = plan.ranks;
    gpus_.replace_faulty(ranks);
  }
  ports_.clear();
  ports_ = std::vector<ReservedPort>(plan.ranks.size() + 1);
  GangPlace place;
  place.master_addr = k_loopback;
  place.master_port = ports_[0].number();
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    place.ranks.push_back({.role = plan.ranks[i].role,
                           .index = plan.ranks[i].index,
                           .host = k_local_host,
                           .port = ports_[i + 1].number(),
                           .gpus = gpus_.of(plan.ranks[i])});
  }
  return place;
}

RankPlace ForkChannel::place_one(const GangRank& rank) {
  std::vector<GangRank> alone{rank};
  gpus_.replace_faulty(alone);
  ports_.emplace_back();
  return {.role = rank.role,
          .index = rank.index,
          .host = k_local_host,
          .port = ports_.back().number(),
          .gpus = gpus_.of(rank)};
}

std::string ForkChannel::node(const GangRank&) const { return host_; }

void ForkChannel::start(std::size_t count, const CommandOf& command, const Started& started) {
  for (std::size_t i = 0; i < count; ++i) {
    auto process = start_one(command(i));
    process.id = (++started_ << k_pid_bits) | process.pid;
    running_[pid_of(process.id)] = process.id;
    idle_ = false;
    started(i, std::move(process));
  }
}

RankProcess ForkChannel::start_one(const RankCommand& command) const {
  const auto env = merge_environment(environ, command.env);
  const auto argv = pointers(command.argv);
  const auto envp = pointers(env);
  auto out = make_pipe();
  auto err = make_pipe();
  make_non_blocking(out.read_end);
  make_non_blocking(err.read_end);
  dup3(out.write_end.get(), slots_[0].get(), O_CLOEXEC);
  dup3(err.write_end.get(), slots_[1].get(), O_CLOEXEC);
  Birth birth{command, argv, envp, file_limit_, slots_, getpid()};
  char** const ours = environ;
  const pid_t pid = bear(birth);
  const int error = errno;
  environ = ours; // A child that shares our memory has changed it.
  // Closes everything but pipes, whose reader waits for their end.
  for (const auto& slot : slots_) {
    dup3(children_.get(), slot.get(), O_CLOEXEC);
  }
  if (pid < 0) {
    throw EngineError(fmt::format("cannot start a process: {}", errno_text(error)));
  }
  return {0, pid, std::move(out.read_end), std::move(err.read_end)};
}

std::vector<RankEnding> ForkChannel::ended() {
  signalfd_siginfo info{};
  while (read(children_.get(), &info, sizeof(info)) == sizeof(info)) {
  }
  std::vector<RankEnding> endings;
  while (true) {
    int status = 0;
    const auto pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      idle_ = pid < 0 && errno == ECHILD; // Nor is there a descendant: as a subreaper we'd have it.
      return endings;
    }
    // Otherwise it is a leftover.
    if (const auto found = running_.find(pid); found != running_.end()) {
      RankEnding ending{.id = found->second, .exit_code = {}, .signal = {}};
      (WIFSIGNALED(status) ? ending.signal : ending.exit_code) =
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
      endings.push_back(ending);
      running_.erase(found);
    }
  }
}

void ForkChannel::end_leftovers(RankId ended, const std::string& instance) {
  // For processes that fork while they are being killed, or take long to end.
  constexpr int k_rounds = 200;
  constexpr timespec k_pause{0, 2'000'000};
  for (int round = 0; round < k_rounds; ++round) {
    const auto left = left_of(pid_of(ended), instance);
    if (left.empty()) {
      return;
    }
    for (const auto& process : left) {
      signal_process(process, SIGKILL);
    }
    nanosleep(&k_pause, nullptr);
  }
}

void ForkChannel::signal(RankId process, int signal) {
  const auto rank = pid_of(process);
  if (const auto found = running_.find(rank); found == running_.end() || found->second != process) {
    return;
  }
  const auto below = descendants(rank);
  if (kill(-rank, signal) != 0) {
    kill(rank, signal);
  }
  for (const auto& each : below) {
    if (each.group != rank) {
      signal_process(each.id, signal);
    }
  }
}

void ForkChannel::signal_all(int signal) {
  // A rank leads its group, and its pid is its own until it has been waited for.
  for (const auto& [pid, id] : running_) {
    if (kill(-pid, signal) != 0) {
      kill(pid, signal); // It does not lead a group yet.
    }
  }
  // Processes that left those groups, or whose rank has ended.
  for (const auto& process : descendants(getpid())) {
    if (!running_.contains(process.group)) {
      signal_process(process.id, signal);
    }
  }
}

} // namespace dtrain
