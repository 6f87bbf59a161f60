#include "backends/ssh/ssh_channel.h"

#include "backends/ssh/rank_script.h"
#include "backends/supervised/gang/devices.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <numeric>
#include <random>

namespace dtrain::ssh {

namespace {

using Clock = Link::Clock;

constexpr std::chrono::seconds k_send_patience{20};
constexpr std::chrono::seconds k_kill_patience{3}; ///< For the guard, before its ssh is ended.
constexpr int k_first_port = 20000;                ///< Below those that connections are given.
constexpr int k_last_port = 32000;
constexpr int k_lost = 255;        ///< ssh's own exit code …
constexpr int k_exited_255 = 165;  ///< … for which the guard has this one.
constexpr int k_signal_base = 128; ///< As shells have it.
constexpr int k_most_signals = 64;

Fd watch_children() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

Fd start_timer() {
  Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec every{};
  constexpr int k_beats = 5;
  every.it_interval.tv_sec = every.it_value.tv_sec = guard_patience().count() / k_beats;
  timerfd_settime(timer.get(), 0, &every, nullptr);
  return timer;
}

} // namespace

std::string run_folder(const std::string& job_uid) { return "/tmp/dtrain-job-" + job_uid; }

SshChannel::SshChannel(const std::string& job_uid, int job_folder)
    : cargo_(open_cargo(job_folder)), run_(run_folder(job_uid)), children_(watch_children()),
      timer_(start_timer()), events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!children_ || !timer_ || !events_) {
    throw EngineError(fmt::format("cannot watch processes: {}", errno_text()));
  }
  for (const auto* fd : {&children_, &timer_}) {
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd->get(), &event);
  }
}

HostQuestion SshChannel::question(const GangRank& rank) const {
  const auto& command = rank.command.empty() ? plan_.command : rank.command;
  const bool is_sent = rank.command.empty() && !cargo_.parcel.empty();
  const bool is_board = rank.role == k_tensorboard; // A job runs without it.
  HostQuestion question{.folder = plan_.working_dir,
                        .program = is_sent    ? k_trainer_file
                                   : is_board ? "sh"
                                              : command.front(),
                        .path = "",
                        .run = run_,
                        .interface = plan_.interface,
                        .number = numbers_.at(rank.host),
                        .gpus = rank.gpus,
                        .slots = 0,
                        .wanted = 0,
                        .parcel = is_sent ? cargo_.parcel : "",
                        .parts = "",
                        .cargo = "",
                        .data = "",
                        .later = !cargo_.empty()};
  for (const auto& host : plan_.hosts) {
    question.slots = host.name == rank.host ? host.slots : question.slots;
  }
  for (const auto& each : plan_.ranks) {
    const bool takes_slot = each.role != k_launcher && each.role != k_tensorboard;
    question.wanted += takes_slot && each.host == rank.host ? 1 : 0;
  }
  for (const auto& mount : plan_.mounts) {
    question.data += mount.source + "\n";
  }
  for (const auto& [name, value] : plan_.env) {
    question.path = name == "PATH" ? value : question.path;
  }
  return question;
}

void SshChannel::connect(const std::vector<int>& ranks) {
  std::vector<Wanted> wanted;
  for (const auto rank : ranks) {
    const auto& planned = plan_.ranks.at(static_cast<std::size_t>(rank));
    wanted.push_back({rank, planned.host, question(planned)});
  }
  const bool launches = plan_.launcher_slots > 0;
  for (auto& [rank, link] : Gathering(cargo_, launches, [&] { beat(); }).connect(wanted)) {
    waiting_[rank] = std::move(link);
  }
}

bool SshChannel::claim_devices(GangPlan& plan) {
  gather(plan);
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    plan.ranks[i].devices = devices_of(static_cast<int>(i));
  }
  return true;
}

/// Of a rank that is connected. Where none of the job asks for any, they are the hosts' to say.
std::optional<std::string> SshChannel::devices_of(int rank) const {
  const auto& planned = plan_.ranks.at(static_cast<std::size_t>(rank));
  const bool asks = std::any_of(plan_.ranks.begin(), plan_.ranks.end(),
                                [](const GangRank& each) { return each.gpus > 0; });
  return !asks                        ? std::nullopt
         : planned.role == k_launcher ? std::optional(devices_at(planned.host))
                                      : std::optional(waiting_.at(rank)->facts().gpus);
}

/// All that the job's workers hold there, for what their launcher starts.
std::string SshChannel::devices_at(const std::string& host) const {
  std::vector<std::string> devices;
  for (const auto& [rank, link] : waiting_) {
    if (link->host() == host && !link->facts().gpus.empty()) {
      devices.push_back(link->facts().gpus);
    }
  }
  return fmt::format("{}", fmt::join(devices, ","));
}

void SshChannel::take(const GangPlan& plan) {
  plan_ = plan;
  for (const auto& rank : plan.ranks) {
    numbers_.emplace(rank.host, numbers_.size());
  }
}

void SshChannel::gather(const GangPlan& plan) {
  waiting_.clear();
  numbers_.clear();
  take(plan);
  std::vector<int> all(plan.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  connect(all);
}

/// "host1 (10.0.0.1), host2 (10.0.0.2)"
std::string SshChannel::where() const {
  constexpr std::size_t k_most_named = 4;
  std::vector<std::string> names;
  std::set<std::string> named;
  for (const auto& [rank, link] : waiting_) {
    if (named.insert(link->host()).second && names.size() < k_most_named) {
      const auto& address = link->facts().address;
      names.push_back(address.empty() || address == link->host()
                          ? link->host()
                          : fmt::format("{} ({})", link->host(), address));
    }
  }
  return fmt::format(
      "{}{}{}", fmt::join(names, ", "),
      named.size() > names.size() ? fmt::format(" and {} more", named.size() - names.size()) : "",
      plan_.interface.empty() ? "" : ", by " + plan_.interface);
}

/// One that nobody listened on when the host was asked, and that no other rank was given.
int SshChannel::free_port(const HostFacts& facts) {
  static std::random_device device;
  std::uniform_int_distribution<int> any(k_first_port, k_last_port);
  auto& given = given_[facts.address];
  for (int round = 0; round < k_last_port; ++round) {
    const int port = any(device);
    if (!facts.ports.contains(port) && given.insert(port).second) {
      return port;
    }
  }
  throw EngineError(fmt::format("no port is free on {}", facts.address));
}

GangPlace SshChannel::place(const GangPlan& plan) {
  if (waiting_.size() != plan.ranks.size()) { // A run after the first.
    gather(plan);
  }
  given_.clear();
  GangPlace place;
  place.hostfile_path = run_ + "/hostfile";
  place.master_addr = waiting_.at(0)->facts().address;
  place.master_port = free_port(waiting_.at(0)->facts());
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    place.ranks.push_back(place_of(static_cast<int>(i)));
  }
  return place;
}

/// What a launcher starts has the launcher's variables, wherever it runs, and no rank's.
RankPlace SshChannel::place_of(int rank) {
  auto planned = plan_.ranks.at(static_cast<std::size_t>(rank));
  const auto& facts = waiting_.at(rank)->facts();
  planned.devices = devices_of(rank);
  return {.role = plan_.is_held(planned) ? k_launcher : planned.role,
          .index = planned.index,
          .host = facts.address,
          .port = free_port(facts),
          .gpus = own_gpus(planned)};
}

int SshChannel::number_of(const GangRank& rank) const {
  const auto found =
      std::find_if(plan_.ranks.begin(), plan_.ranks.end(),
                   [&](const GangRank& each) { return each.instance == rank.instance; });
  return static_cast<int>(found - plan_.ranks.begin());
}

/// Its host gives it what is free there by now, if other GPUs than before.
void SshChannel::take_anew(const GangRank& rank, RankPlace& place) {
  const int number = number_of(rank);
  connect({number});
  auto planned = rank;
  planned.devices = devices_of(number);
  place.gpus = own_gpus(planned);
}

std::string SshChannel::leave_out_lost(GangPlan& plan) {
  std::set<std::string> lost;
  while (true) {
    try {
      claim_devices(plan);
      return lost.empty() ? ""
                          : fmt::format("restarted without {}, which cannot be used any more",
                                        fmt::join(lost, ", "));
    } catch (const UnusableHosts& error) {
      if (!leave_out_hosts(plan, error.names)) {
        throw;
      }
      lost.insert(error.names.begin(), error.names.end());
    }
  }
}

RankPlace SshChannel::place_one(const GangRank& rank) {
  const int number = number_of(rank);
  connect({number});
  return place_of(number);
}

void SshChannel::start(std::size_t count, const CommandOf& command, const Started& started) {
  std::vector<RankCommand> commands;
  for (std::size_t i = 0; i < count; ++i) {
    commands.push_back(command(i));
  }
  std::vector<Link*> sending;
  for (std::size_t i = 0; i < count; ++i) {
    auto entry = waiting_.extract(commands[i].rank);
    auto& link = running_[++started_] = std::move(entry.mapped());
    const auto& planned = plan_.ranks.at(static_cast<std::size_t>(commands[i].rank));
    const auto script =
        rank_script(commands[i], {.id = link->id(),
                                  .grace_ms = plan_.grace_period_ms,
                                  .parcel = planned.command.empty() ? cargo_.parcel : "",
                                  .has_launcher = plan_.launcher_slots > 0,
                                  .launches = planned.role == k_launcher});
    link->send(fmt::format("start {}\n", script.size()));
    link->send(script);
    sending.push_back(link.get());
    started(i, {started_, 0, link->take_out(), link->take_err()});
  }
  // Long ones, of thousands of ranks, go as fast as their hosts take them.
  const auto deadline = Clock::now() + k_send_patience;
  while (std::erase_if(sending, [](Link* link) { return !link->flush() || !link->has_unsent(); }),
         !sending.empty() && Clock::now() < deadline) {
    std::vector<pollfd> descriptors;
    descriptors.reserve(sending.size());
    for (const auto* link : sending) {
      descriptors.push_back({link->in(), POLLOUT, 0});
    }
    constexpr int k_round_ms = 1000;
    poll(descriptors.data(), descriptors.size(), k_round_ms);
  }
}

std::vector<RankEnding> SshChannel::ended() {
  signalfd_siginfo info{};
  while (read(children_.get(), &info, sizeof(info)) == sizeof(info)) {
  }
  beat();
  std::vector<RankEnding> endings;
  while (true) {
    int status = 0;
    const auto pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) {
      return endings;
    }
    const auto is_it = [&](const auto& entry) { return entry.second->pid() == pid; };
    if (const auto early = std::find_if(waiting_.begin(), waiting_.end(), is_it);
        early != waiting_.end()) {
      early->second->forget_process();
      continue;
    }
    const auto found = std::find_if(running_.begin(), running_.end(), is_it);
    if (found == running_.end()) {
      continue;
    }
    auto& link = *found->second;
    link.forget_process();
    RankEnding ending{.id = found->first};
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (WIFSIGNALED(status)) {
      ending.loss = fmt::format("its ssh was ended by signal {} (SIG{})", WTERMSIG(status),
                                sigabbrev_np(WTERMSIG(status)));
    } else if (code == k_lost) {
      ending.loss = link.loss();
    } else if (code == k_exited_255) {
      ending.exit_code = k_lost;
    } else if (code > k_signal_base && code <= k_signal_base + k_most_signals) {
      ending.signal = code - k_signal_base;
    } else {
      ending.exit_code = code;
    }
    endings.push_back(std::move(ending));
    running_.erase(found);
  }
}

/// Where it is time to. A connection that takes nothing is ssh's to give up.
void SshChannel::beat() {
  std::uint64_t times = 0;
  if (read(timer_.get(), &times, sizeof(times)) != sizeof(times)) {
    return;
  }
  for (const auto& [id, link] : running_) {
    if (!link->has_unsent()) {
      link->send("beat\n");
    }
  }
}

void SshChannel::tell(Link& link, int signal) {
  const auto now = Clock::now();
  if (signal == SIGKILL && link.killed) { // The gang asks again and again.
    if (now > *link.killed + k_kill_patience && link.pid() != 0) {
      kill(-link.pid(), SIGKILL);
    }
    return;
  }
  if (signal == SIGKILL) {
    link.killed = now;
  }
  link.send(fmt::format("{}\n", sigabbrev_np(signal)));
}

/// A word that the guard takes, and the lines that it says are to follow.
void SshChannel::show_hosts(const std::string& hostfile) {
  for (const auto& [id, link] : running_) {
    link->send(
        fmt::format("hosts {}\n{}", std::count(hostfile.begin(), hostfile.end(), '\n'), hostfile));
  }
}

void SshChannel::signal_all(int signal) {
  for (const auto& [id, link] : running_) {
    tell(*link, signal);
  }
}

void SshChannel::signal(RankId process, int signal) {
  if (const auto found = running_.find(process); found != running_.end()) {
    tell(*found->second, signal);
  }
}

} // namespace dtrain::ssh
