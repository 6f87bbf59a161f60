#include "backends/local/fork_channel.h"

#include "backends/local/gpu_health.h"
#include "backends/local/gpu_measurement.h"
#include "backends/local/gpus.h"
#include "backends/local/mounts.h"
#include "backends/supervised/gang/devices.h"
#include "backends/supervised/store/job_view.h"
#include "backends/support/os/files.h"
#include "backends/support/os/pipe.h"
#include "backends/support/os/process.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include <iterator>
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

/// The last worker, if an elastic job has enough without it; otherwise the end.
std::vector<GangRank>::iterator spare_worker(std::vector<GangRank>& ranks, int fewest) {
  const auto workers = std::count_if(
      ranks.begin(), ranks.end(), [](const GangRank& rank) { return is_ranked_role(rank.role); });
  const auto last = std::find_if(ranks.rbegin(), ranks.rend(),
                                 [](const GangRank& rank) { return rank.role == k_worker; });
  return fewest == 0 || workers <= fewest || last == ranks.rend() ? ranks.end()
                                                                  : std::prev(last.base());
}

} // namespace

ForkChannel::ForkChannel(const rlimit& file_limit, GpuUser user)
    : file_limit_(file_limit), user_(std::move(user)), host_(host_name()), slots_(open_slots()),
      children_(watch_children()) {}

bool ForkChannel::claim_devices(GangPlan& plan) {
  std::vector<std::vector<std::string>> ranks;
  for (const auto& rank : plan.ranks) {
    ranks.push_back(own_gpus(rank).value_or(std::vector<std::string>()));
  }
  auto claims = claim_gpus(ranks, plan.gpus_shared, user_);
  for (std::size_t i = 0; claims && i < ranks.size(); ++i) {
    if (!ranks[i].empty()) {
      claims_.emplace(plan.ranks[i].instance, std::move((*claims)[i]));
    }
  }
  return claims.has_value();
}

void ForkChannel::hold_devices(const GangPlan& plan) {
  std::erase_if(claims_, [&](const auto& claim) {
    return std::none_of(plan.ranks.begin(), plan.ranks.end(), [&](const GangRank& rank) {
      return rank.instance == claim.first && gpus_of(rank) == claim.second.devices();
    });
  });
  for (const auto& rank : plan.ranks) {
    hold(rank);
  }
}

/// The rank's own GPUs, some of which may differ from those in the plan.
std::optional<std::vector<std::string>> ForkChannel::gpus_of(const GangRank& rank) const {
  auto gpus = own_gpus(rank);
  if (gpus) {
    for (std::string& device : *gpus) {
      const auto found = instead_.find(device);
      device = found == instead_.end() ? device : found->second;
    }
  }
  return gpus;
}

/// Devices that another job has taken by now also count as this rank's.
void ForkChannel::hold(const GangRank& rank) {
  const auto devices = gpus_of(rank).value_or(std::vector<std::string>());
  if (!devices.empty() && !claims_.contains(rank.instance)) {
    auto claims = claim_gpus({devices}, devices.size(), user_);
    claims_.emplace(rank.instance, std::move(claims->front()));
  }
}

/// Replaces faulty devices among those that the ranks hold by free ones. If there is no free one,
/// does without the last workers, down to `fewest` (0: none is left out), or throws EngineError.
void ForkChannel::leave_out_faulty(std::vector<GangRank>& ranks, int fewest) {
  const auto has_some = [&](const GangRank& rank) { return claims_.contains(rank.instance); };
  if (gpu_check_ == GpuCheck::none || std::none_of(ranks.begin(), ranks.end(), has_some)) {
    return;
  }
  const GpuHealth health = ask_gpu_health();
  const FaultOf fault_of = [&](const std::string& device) { return health.fault_of(device); };
  replace_faulty(ranks, fewest, fault_of);
  if (gpu_check_ == GpuCheck::measured) {
    leave_out_measured(ranks, fewest, fault_of);
  }
}

/// Measures the ranks' devices together, until those that took the place of others are good, too.
void ForkChannel::leave_out_measured(std::vector<GangRank>& ranks, int fewest,
                                     const FaultOf& known) {
  std::map<std::string, std::string> faults; // By device, those that were replaced, too.
  const FaultOf fault_of = [&](const std::string& device) {
    const auto found = faults.find(device);
    return found == faults.end() ? known(device) : found->second;
  };
  MeasuredGpus measured;
  do {
    std::vector<std::string> devices;
    for (const GangRank& rank : ranks) {
      for (const std::string& device : gpus_of(rank).value_or(std::vector<std::string>())) {
        if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
          devices.push_back(device);
        }
      }
    }
    measured = measure_gpus(devices);
    faults.merge(measured.faults);
  } while (replace_faulty(ranks, fewest, fault_of));
  for (const std::string& link : measured.links) {
    tell(link);
  }
  if (!measured.failure.empty()) {
    tell(fmt::format("the GPUs were not measured (--check-gpus=measure): {}", measured.failure));
  }
}

void ForkChannel::tell(const std::string& what) {
  left_out_ += fmt::format("{}{}", left_out_.empty() ? "" : "; ", what);
}

/// Has the ranks' devices stay distinct: whoever was to have `other` gets what it takes the place
/// of.
void ForkChannel::swap_devices(const std::string& planned, const std::string& other) {
  const auto has_other = std::find_if(instead_.begin(), instead_.end(),
                                      [&](const auto& each) { return each.second == other; });
  const std::string before = has_other == instead_.end() ? other : has_other->first;
  const auto has = instead_.emplace(planned, planned).first;
  instead_[before] = has->second;
  has->second = other;
}

/// False: none of the ranks' devices is faulty.
bool ForkChannel::replace_faulty(std::vector<GangRank>& ranks, int fewest,
                                 const FaultOf& fault_of) {
  const auto distinct_faults = [&](std::vector<std::string> devices,
                                   const std::vector<std::string>& more) {
    devices.insert(devices.end(), more.begin(), more.end());
    std::vector<std::string> faults;
    for (const std::string& device : devices) {
      const std::string fault = fault_of(device);
      if (!fault.empty() && std::find(faults.begin(), faults.end(), fault) == faults.end()) {
        faults.push_back(fault);
      }
    }
    return faults;
  };
  bool has_replaced = false;
  for (const GangRank& rank : ranks) {
    const auto planned = own_gpus(rank).value_or(std::vector<std::string>());
    const auto has = gpus_of(rank).value_or(std::vector<std::string>());
    for (std::size_t i = 0; i < has.size(); ++i) {
      const std::string fault = fault_of(has[i]);
      if (fault.empty()) {
        continue;
      }
      const auto others = unclaimed_gpus(find_gpus());
      const auto other = std::find_if(others.begin(), others.end(),
                                      [&](const auto& device) { return fault_of(device).empty(); });
      if (other == others.end()) {
        if (const auto last = spare_worker(ranks, fewest); last != ranks.end()) {
          for (const std::string& each :
               distinct_faults(gpus_of(*last).value_or(std::vector<std::string>()), others)) {
            if (left_out_.find(each) == std::string::npos) {
              tell(each);
            }
          }
          claims_.erase(last->instance); // Its GPUs may be the others' now.
          ranks.erase(last);
          replace_faulty(ranks, fewest, fault_of);
          return true;
        }
        for (const GangRank& each : ranks) { // Before anybody is told: none of them starts.
          claims_.erase(each.instance);
        }
        left_out_.clear();
        throw EngineError(
            fmt::format("{}; no other GPU is free here (--check-gpus=off skips the check)",
                        fmt::join(distinct_faults({has[i]}, others), "; ")));
      }
      tell(fmt::format("{}; using GPU {} instead", fault, *other));
      has_replaced = true;
      swap_devices(planned[i], *other);
      claims_.erase(rank.instance);
      hold(rank);
    }
  }
  return has_replaced;
}

void ForkChannel::prepare_restart(const GangRank& rank, RankPlace& place) {
  hold(rank);
  std::vector<GangRank> alone{rank};
  leave_out_faulty(alone, 0);
  place.gpus = gpus_of(rank);
}

/// Daemons that the rank left may be at work there until the job ends.
void ForkChannel::free_devices(RankId ended, const std::string& instance) {
  if (claims_.contains(instance) && left_of(pid_of(ended), instance).empty()) {
    claims_.erase(instance);
  }
}

std::string ForkChannel::leave_out_lost(GangPlan& plan) {
  gpu_check_ = plan.gpu_check;
  instead_.clear(); // All are asked again, those that were faulty before too.
  hold_devices(plan);
  const auto wanted = plan.ranks;
  leave_out_faulty(plan.ranks, plan.min_workers);
  is_checked_ = true;
  std::vector<std::string> missing;
  for (const GangRank& rank : wanted) {
    if (std::none_of(plan.ranks.begin(), plan.ranks.end(),
                     [&](const GangRank& each) { return each.instance == rank.instance; })) {
      missing.push_back(rank.instance);
    }
  }
  if (!missing.empty()) {
    tell(fmt::format("no other GPU is free here: started without {}", fmt::join(missing, ", ")));
  }
  return "";
}

GangPlace ForkChannel::place(const GangPlan& plan) {
  gpu_check_ = plan.gpu_check;
  hold_devices(plan); // Ranks that ended in an earlier run have released their devices.
  if (!std::exchange(is_checked_, false)) {
    auto ranks = plan.ranks;
    leave_out_faulty(ranks, 0);
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
                           .gpus = gpus_of(plan.ranks[i])});
  }
  return place;
}

RankPlace ForkChannel::place_one(const GangRank& rank) {
  std::vector<GangRank> alone{rank};
  leave_out_faulty(alone, 0);
  ports_.emplace_back();
  return {.role = rank.role,
          .index = rank.index,
          .host = k_local_host,
          .port = ports_.back().number(),
          .gpus = gpus_of(rank)};
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
