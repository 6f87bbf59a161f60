#include "backends/ssh/ssh_channel.h"

#include "backends/ssh/rank_script.h"
#include "backends/supervised/gang/devices.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <random>
#include <utility>

namespace dtrain::ssh {

namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds k_kill_interval{1}; ///< The gang asks again and again.
constexpr std::chrono::seconds k_kill_timeout{10}; ///< For an agent to kill all its processes.
constexpr std::chrono::seconds k_claim_timeout{20};
constexpr std::chrono::seconds k_clean_timeout{5};
constexpr int k_first_port = 20000; ///< Below those that connections are given.
constexpr int k_last_port = 32000;

} // namespace

SshChannel::SshChannel(const std::string& job_uid, int job_folder, bool is_new)
    : payload_(open_payload(job_folder)), leaves_nothing_(is_new),
      connections_(
          job_uid, [this](const AgentFrame& frame) { take_frame(frame); },
          [this](const std::string& host, const std::string& why) { lose(host, why); }),
      requests_(connections_, job_folder) {}

/// The hosts of a job that was refused or withdrawn keep nothing of it.
SshChannel::~SshChannel() {
  output_ = nullptr;
  if (leaves_nothing_ && !payload_.parts.empty()) {
    std::map<std::string, RankId> asked;
    for (const auto& [host, facts] : known_.facts) {
      asked[host] = connections_.ask(host, "begin() {\nrm -rf \"$run\"/code \"$run\"/code.*\n}\n");
    }
    const auto deadline = Clock::now() + k_clean_timeout;
    while (Clock::now() < deadline &&
           std::any_of(asked.begin(), asked.end(),
                       [&](const auto& each) { return !connections_.is_answered(each.second); })) {
      constexpr milliseconds k_brief{100};
      connections_.wait(k_brief);
    }
  }
  close();
}

void SshChannel::close() {
  requests_.close();
  connections_.close();
}

/// Claims on a lost host cannot be released.
void SshChannel::free_claim(const std::string& instance) {
  const auto found = known_.claims.find(instance);
  if (found != known_.claims.end()) {
    if (auto* connection = connections_.find(found->second.host)) {
      connection->free(found->second.key);
    }
    known_.claims.erase(found);
  }
}

/// From here on the ranks of this plan are started; claims that none of its ranks has are released.
void SshChannel::take(const GangPlan& plan) {
  plan_ = plan;
  for (auto& rank : plan_.ranks) {
    const auto moved = moved_.find(rank.instance);
    rank.host = moved == moved_.end() ? rank.host : moved->second;
  }
  connections_.set_limits(plan.host_timeout_ms > 0 ? milliseconds(plan.host_timeout_ms)
                                                   : milliseconds(Connections::k_host_timeout),
                          plan.grace_period_ms);
  std::vector<std::string> over;
  for (const auto& [instance, claim] : known_.claims) {
    if (std::none_of(plan_.ranks.begin(), plan_.ranks.end(),
                     [&, &name = instance, &held = claim](const GangRank& rank) {
                       return rank.instance == name && rank.host == held.host &&
                              rank.gpus == held.gpus;
                     })) {
      over.push_back(instance);
    }
  }
  for (const auto& instance : over) {
    free_claim(instance);
  }
}

HostQuestion SshChannel::question(const std::string& host,
                                  const std::vector<const GangRank*>& ranks) const {
  HostQuestion question;
  question.host.name = host;
  question.folder = plan_.working_dir;
  question.interface = plan_.interface;
  for (std::size_t i = 0; i < plan_.hosts.size(); ++i) { // Skips hosts that are lost meanwhile.
    if (plan_.hosts[i].name == host) {
      question.number = i;
      question.host = plan_.hosts[i];
    }
  }
  std::set<std::string> programs;
  for (const auto* rank : ranks) {
    if (rank->host != host) {
      continue;
    }
    if (rank->command.empty() && !payload_.bundle.empty()) {
      question.runs_bundle = true;
    } else if (rank->role != k_tensorboard) { // A job runs without it.
      programs.insert(rank->command.empty() ? plan_.command.front() : rank->command.front());
    }
    if (rank->gpus > 0 && !known_.claims.contains(rank->instance)) {
      question.gpus.emplace_back(rank->instance, rank->gpus);
    }
    if (rank->gpus > 0 && plan_.gpu_check != GpuCheck::none) {
      question.checked.push_back(rank->instance);
      question.measures = plan_.gpu_check == GpuCheck::measured;
    }
  }
  question.programs.assign(programs.begin(), programs.end());
  for (const auto& rank : plan_.ranks) {
    question.wanted += takes_slot(rank) && rank.host == host ? 1 : 0;
  }
  for (const auto& mount : plan_.mounts) {
    question.data.push_back(mount.source);
  }
  for (const auto& [name, value] : plan_.env) {
    question.path = name == "PATH" ? value : question.path;
  }
  return question;
}

/// The hosts of these ranks, in the ranks' order.
void SshChannel::ask(const std::vector<const GangRank*>& ranks,
                     const std::function<bool()>& stops) {
  std::vector<HostQuestion> questions;
  std::set<std::string> hosts;
  for (const auto* rank : ranks) {
    if (hosts.insert(rank->host).second) {
      questions.push_back(question(rank->host, ranks));
    }
  }
  Preflight(connections_, payload_, plan_.launcher_slots > 0, known_, stops).run(questions);
}

void SshChannel::ask_all() {
  std::vector<const GangRank*> all;
  for (const auto& rank : plan_.ranks) {
    all.push_back(&rank);
  }
  ask(all, stops_);
}

bool SshChannel::claim_devices(GangPlan& plan) {
  const auto planned = plan.ranks;
  claim(plan, planned);
  return true;
}

/// `planned`: where the job's plan has the ranks, some of which may be elsewhere already.
void SshChannel::claim(GangPlan& plan, const std::vector<GangRank>& planned) {
  moved_.clear();
  take(plan);
  while (true) {
    try {
      ask_all();
      break;
    } catch (const UnusableHosts& error) {
      if (plan.min_workers == 0 || !error.names.empty() || !leave_out_faulty(error.faulty)) {
        throw;
      }
    }
  }
  plan.ranks = plan_.ranks;
  remember_moves(planned);
  for (auto& rank : plan.ranks) {
    rank.devices = devices_of(rank);
  }
  check_view(plan.gpu_view, plan.ranks);
  is_fresh_ = true;
}

bool SshChannel::any_gpus() const {
  return std::any_of(plan_.ranks.begin(), plan_.ranks.end(),
                     [](const GangRank& rank) { return rank.gpus > 0; });
}

/// If no rank of the job asks for GPUs, the hosts decide, or the user's choice of devices.
std::optional<std::string> SshChannel::devices_of(const GangRank& rank) const {
  if (!any_gpus()) {
    return known_.facts.at(rank.host).gpus;
  }
  if (rank.role == k_launcher) {
    return devices_at(rank.host);
  }
  const auto claim = known_.claims.find(rank.instance);
  return claim == known_.claims.end() ? "" : claim->second.devices;
}

/// All GPUs that the job's workers hold there, for the processes that their launcher starts.
std::string SshChannel::devices_at(const std::string& host) const {
  std::vector<std::string> devices;
  for (const auto& rank : plan_.ranks) {
    const auto claim = known_.claims.find(rank.instance);
    if (rank.host == host && claim != known_.claims.end()) {
      devices.push_back(claim->second.devices);
    }
  }
  return fmt::format("{}", fmt::join(devices, ","));
}

/// All ranks are asked again at the next start, as it may be another plan than was claimed for.
void SshChannel::hold_devices(const GangPlan& plan) {
  is_fresh_ = false;
  take(plan);
}

std::string SshChannel::left_out() {
  return fmt::format("{}", fmt::join(std::exchange(known_.left_out, {}), "; "));
}

/// "host1 (10.0.0.1), host2 (10.0.0.2)"
std::string SshChannel::where() const {
  constexpr std::size_t k_most_named = 4;
  std::vector<std::string> names;
  std::set<std::string> named;
  for (const auto& rank : plan_.ranks) {
    if (named.insert(rank.host).second && names.size() < k_most_named) {
      const auto& address = known_.facts.at(rank.host).address;
      names.push_back(address.empty() || address == rank.host
                          ? rank.host
                          : fmt::format("{} ({})", rank.host, address));
    }
  }
  return fmt::format(
      "{}{}{}", fmt::join(names, ", "),
      named.size() > names.size() ? fmt::format(" and {} more", named.size() - names.size()) : "",
      plan_.interface.empty() ? "" : ", by " + plan_.interface);
}

/// A port that was free when the host was asked, and that no other rank was given.
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
  throw EngineError(fmt::format("no free port on {}", facts.address));
}

GangPlace SshChannel::place(const GangPlan& plan) {
  if (!std::exchange(is_fresh_, false)) { // A run after the first.
    auto again = plan;
    claim_devices(again);
    is_fresh_ = false;
  }
  killing_.reset();
  killed_.clear();
  given_.clear();
  GangPlace place;
  place.hostfile_path = k_own_hostfile;
  const auto& first = known_.facts.at(plan_.ranks.front().host);
  place.master_addr = first.address;
  place.master_port = free_port(first);
  for (const auto& rank : plan_.ranks) {
    place.ranks.push_back(place_of(rank));
  }
  return place;
}

/// Processes started by a launcher have its variables, wherever they run, and none of a rank.
RankPlace SshChannel::place_of(const GangRank& rank) {
  auto planned = rank;
  planned.devices = devices_of(rank);
  const auto& facts = known_.facts.at(rank.host);
  return {.role = plan_.is_held(rank) ? k_launcher : rank.role,
          .index = rank.index,
          .host = facts.address,
          .port = free_port(facts),
          .gpus = own_gpus(planned)};
}

/// Restarts on its host, where it still has its GPUs; waits only for a rank that has released them.
void SshChannel::prepare_restart(const GangRank& rank, RankPlace& place) {
  if (connections_.find(rank.host) == nullptr) {
    throw EngineError(fmt::format("{} is lost", rank.host));
  }
  if (rank.gpus > 0 && !known_.claims.contains(rank.instance)) {
    const auto key = connections_.claim(rank.host, rank.gpus);
    const auto deadline = Clock::now() + k_claim_timeout;
    while (!connections_.is_answered(key) && Clock::now() < deadline && !stops_or_ended_()) {
      constexpr milliseconds k_round{1000};
      connections_.wait(k_round);
    }
    if (!connections_.is_answered(key)) {
      connections_.forget(key);
      if (Clock::now() < deadline) {
        throw WaitStopped();
      }
      throw EngineError(fmt::format("{} does not answer", rank.host));
    }
    const auto answer = connections_.take_answer(key);
    if (!answer.failure.empty()) {
      throw EngineError(fmt::format("{} {}", rank.host, answer.failure));
    }
    known_.claims[rank.instance] = {rank.host, key, rank.gpus, answer.text};
  }
  Preflight(connections_, payload_, false, known_, stops_or_ended_)
      .check_gpus(question(rank.host, {&rank}));
  auto planned = rank;
  planned.devices = devices_of(rank);
  place.gpus = own_gpus(planned);
}

void SshChannel::free_devices(RankId /*ended*/, const std::string& instance) {
  free_claim(instance);
}

RankPlace SshChannel::place_one(const GangRank& rank) {
  ask({&rank}, stops_);
  return place_of(rank);
}

void SshChannel::start(std::size_t count, const CommandOf& command, const Started& started) {
  leaves_nothing_ = false;
  for (std::size_t i = 0; i < count; ++i) {
    const auto wanted = command(i);
    const auto& planned = plan_.ranks.at(static_cast<std::size_t>(wanted.rank));
    const auto key = connections_.new_key();
    running_[key] = planned.host;
    started(i, {key, 0, Fd(), Fd()});
    if (auto* connection = connections_.find(planned.host)) {
      connection->start(
          key, rank_script(wanted, {.bundle = planned.command.empty() ? payload_.bundle : "",
                                    .has_launcher = plan_.launcher_slots > 0,
                                    .launches = planned.role == k_launcher}));
    } else {
      const auto* loss = connections_.loss(planned.host);
      running_.erase(key);
      endings_.push_back({.id = key, .loss = loss == nullptr ? "" : loss->why});
    }
  }
}

void SshChannel::take_frame(const AgentFrame& frame) {
  const auto rank = running_.find(frame.key);
  if (rank == running_.end()) {
    return;
  }
  switch (frame.kind) {
  case AgentFrame::Kind::out:
  case AgentFrame::Kind::err:
    if (output_) {
      output_(frame.key, frame.kind == AgentFrame::Kind::out ? Stream::out : Stream::err,
              frame.text);
    }
    break;
  case AgentFrame::Kind::stuck:
    if (output_) {
      output_(frame.key, Stream::err, stuck_text(frame, rank->second));
    }
    [[fallthrough]];
  case AgentFrame::Kind::ended:
    endings_.push_back(ending_of(frame));
    running_.erase(rank);
    killed_.erase(frame.key);
    break;
  default:
    break;
  }
}

void SshChannel::lose(const std::string& host, const std::string& why) {
  for (auto rank = running_.begin(); rank != running_.end();) {
    if (rank->second != host) {
      ++rank;
      continue;
    }
    endings_.push_back({.id = rank->first, .loss = why});
    rank = running_.erase(rank);
  }
  std::erase_if(known_.claims, [&](const auto& claim) { return claim.second.host == host; });
}

std::vector<RankEnding> SshChannel::ended() {
  connections_.advance();
  requests_.advance();
  return std::exchange(endings_, {});
}

void SshChannel::show_hosts(const std::string& hostfile) {
  for (const auto& [host, facts] : known_.facts) {
    if (auto* connection = connections_.find(host)) {
      connection->show_hosts(hostfile);
    }
  }
}

void SshChannel::signal_all(int signal) {
  const auto now = Clock::now();
  if (signal == SIGKILL) {
    if (!killing_) {
      killing_ = now;
    } else if (now < killed_all_ + k_kill_interval) {
      return;
    }
    killed_all_ = now;
  }
  std::set<std::string> hosts;
  for (const auto& [key, host] : running_) {
    hosts.insert(host);
  }
  for (const auto& host : hosts) {
    if (signal == SIGKILL && now > *killing_ + k_kill_timeout) {
      connections_.drop(host, "its ranks survived SIGKILL");
    } else if (auto* connection = connections_.find(host)) {
      connection->signal_all(signal);
    }
  }
}

void SshChannel::signal(RankId process, int signal) {
  const auto found = running_.find(process);
  if (found == running_.end()) {
    return;
  }
  const auto now = Clock::now();
  if (signal == SIGKILL) {
    const auto [last, is_first] = killed_.emplace(process, now);
    if (!is_first && now < last->second + k_kill_interval) {
      return;
    }
    last->second = now;
  }
  if (auto* connection = connections_.find(found->second)) {
    connection->signal(process, signal);
  }
}

} // namespace dtrain::ssh
