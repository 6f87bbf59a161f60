// Starts a gang's ranks: where each runs, and with which environment.
#include "backends/supervised/gang/gang.h"
#include "backends/supervised/launcher_tools.h"
#include "backends/support/logs/time_text.h"
#include "backends/support/os/files.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace dtrain {

namespace {

constexpr const char* k_workspace = "root";

} // namespace

JobStatus Gang::initial_status(const GangPlan& plan, const Channel& channel) {
  const auto count = static_cast<int>(plan.ranks.size());
  JobStatus status;
  status.name = plan.job.name;
  status.namespace_name = plan.job.namespace_name;
  status.trainer = plan.trainer;
  status.priority = plan.priority;
  status.labels = plan.labels;
  status.phase = Phase::pending;
  status.created = time_now();
  count_gpus(plan, status);
  status.node = channel.node(plan.ranks.front());
  for (int rank = 0; rank < count; ++rank) {
    const auto& planned = plan.ranks[static_cast<std::size_t>(rank)];
    status.instances.push_back(pending_instance(planned, rank == 0, channel.node(planned)));
  }
  return status;
}

void Gang::start_ranks() {
  auto& status = record_.status;
  place_ = channel_.place(plan_);
  auto& place = place_;
  place.job_name = plan_.job.name;
  place.namespace_name = plan_.job.namespace_name;
  place.job_uid = status.uid;
  place.job_token = token_;
  place.restart_count = status.restarts;
  place.max_restarts = plan_.max_restarts;
  place.min_workers = plan_.min_workers;
  place.max_workers = plan_.max_workers;
  place.torchrun_nproc = plan_.torchrun_processes;
  place.gpu_view = plan_.gpu_view;
  place.launcher_slots = plan_.launcher_slots;
  if (place.hostfile_path.empty()) {
    place.hostfile_path = fmt::format("{}/{}", folder_.path(), k_hostfile);
  }
  if (!plan_.mounts.empty()) {
    open_private_folder_at(folder_.fd(), k_workspace, folder_.path() + "/" + k_workspace, true);
  }
  for (auto& instance : status.instances) {
    instance.phase = Phase::pending;
    instance.pid = 0;
    instance.started = instance.ended = 0;
    instance.exit_code.reset();
    instance.signal.reset();
  }
  place.launcher_hosts = launcher_hosts();
  folder_.write(k_hostfile, hostfile_text(place));
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (plan_.ranks[i].role == k_launcher && plan_.ranks[i].host.empty()) {
      write_launcher_tools(folder_);
    }
    ranks_[i].output = make_output(plan_.ranks[i]);
  }
  has_run_ = true;
  start_some(start_order(), place);
  status.phase = Phase::running;
  if (status.started == 0) {
    status.started = status.instances.front().started;
  }
}

std::unique_ptr<RankOutput> Gang::make_output(const GangRank& planned) {
  return std::make_unique<RankOutput>(
      loop_, block_,
      LogFile(folder_.create_log(planned.instance, record_.status.restarts), plan_.log_limit),
      [this] { expect_partial(); });
}

RankCommand Gang::command_of(std::size_t rank, const GangPlace& place,
                             const std::string& hostfile) {
  const auto& planned = plan_.ranks[rank];
  auto env = rank_env(place, static_cast<int>(rank));
  env.emplace_back(k_instance_variable, planned.instance);
  env.insert(env.end(), plan_.env.begin(), plan_.env.end());
  if (planned.role == k_launcher && planned.host.empty()) {
    add_launcher_env(env, folder_);
  }
  auto command = planned.command.empty() ? plan_.command : planned.command;
  if (planned.role == k_tensorboard) {
    command.push_back(fmt::format("--port={}", place.ranks[rank].port));
    record_.status.tensorboard =
        fmt::format("http://{}:{}", place.ranks[rank].host, place.ranks[rank].port);
  }
  return {static_cast<int>(rank),
          std::move(command),
          std::move(env),
          plan_.working_dir,
          plan_.mounts,
          fmt::format("{}/{}", folder_.path(), k_workspace),
          hostfile};
}

void Gang::start_some(const std::vector<std::size_t>& ranks, const GangPlace& place) {
  if (const auto left_out = channel_.left_out(); !left_out.empty()) {
    record_.status.reason = left_out;
    ranks_[ranks.front()].output->log().write(Stream::err, fmt::format("dtrain: {}\n", left_out),
                                              time_now());
  }
  const auto hostfile = hostfile_text(place);
  channel_.start(
      ranks.size(), [&](std::size_t i) { return command_of(ranks[i], place, hostfile); },
      [&](std::size_t i, RankProcess process) {
        auto& rank = ranks_[ranks[i]];
        rank.process = rank.last_process = process.id;
        rank.began = PollLoop::Clock::now();
        rank.output->attach(std::move(process.out), std::move(process.err));
        auto& instance = record_.status.instances[ranks[i]];
        instance.pid = process.pid;
        instance.phase = Phase::running;
        instance.started = time_now();
      });
}

/// The hosts of each worker with slots; otherwise the launcher's own.
std::vector<std::string> Gang::launcher_hosts() const {
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < plan_.ranks.size(); ++i) {
    if (plan_.is_held(plan_.ranks[i]) && record_.status.instances[i].phase != Phase::failed) {
      hosts.push_back(place_.ranks[i].host);
    }
  }
  if (hosts.empty() && plan_.launcher_slots > 0) {
    hosts.push_back(place_.ranks.front().host);
  }
  return hosts;
}

void Gang::show_hosts() {
  place_.launcher_hosts = launcher_hosts();
  const auto text = hostfile_text(place_);
  folder_.write(k_hostfile, text);
  channel_.show_hosts(text);
}

/// Ranks in the order in which the plan has them started.
std::vector<std::size_t> Gang::start_order() const {
  std::vector<std::size_t> order(ranks_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t rank) {
    return std::find(plan_.start_order.begin(), plan_.start_order.end(), plan_.ranks[rank].role);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  return order;
}

} // namespace dtrain
