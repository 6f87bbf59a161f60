#include "trainer/strategy/parameter_server/server.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/checkpoint/numbered_files.h"

namespace trainer {

ParameterServer::ParameterServer(const PsJob& job, const TaskAddress& address, Device& device,
                                 const Notice& notice)
    : WorkerService(job, address, fmt::format("ps {}", job.task.index),
                    LinkPurpose::parameter_server, notice),
      device_(device),
      snapshot_folder_(job.snapshot_dir.empty()
                           ? ""
                           : fmt::format("{}/ps-{}-of-{}", job.snapshot_dir, job.task.index,
                                         job.task.servers.size())) {}

void ParameterServer::run() {
  WorkerService::run();
  report();
  const Traffic all = traffic();
  const auto megabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  say(fmt::format("ends at step {}: {:.2f} MB in, {:.2f} MB out, {:.2f} MB through shared memory",
                  version(), megabytes(all.in), megabytes(all.out), megabytes(all.shared)));
}

std::string ParameterServer::refusal(const WorkerHello& hello) {
  if (settings_) {
    const std::string differs = difference(*settings_, hello);
    return differs.empty() ? ""
                           : fmt::format("it trains another job than worker {}: {}",
                                         settings_->worker, differs);
  }
  settings_ = hello;
  store_.emplace(hello.ranges(), hello.settings.learning_rate, device_);
  if (!snapshot_folder_.empty()) {
    remove_unfinished(snapshot_folder_);
    snapshots_ = ShardStore::snapshots(snapshot_folder_);
  }
  return "";
}

void ParameterServer::joined(Session& session) {
  session.clock = slowest_clock();
  session.member = gathering_;
  welcome(session);
  if (gathering_ && missing_workers().empty()) {
    end_gathering();
  } else if (!gathering_) {
    say(fmt::format("{} joined at step {}", session.name(), version()));
  }
}

std::string ParameterServer::lost(const Session& /*session*/) {
  return fmt::format("at step {}, {} of {} workers left", version(), active_workers(), workers());
}

ServerWelcome ParameterServer::standing(const Session& session) const {
  ServerWelcome now{.version = version(),
                    .generation = generation_,
                    .has_moved = version() > began_at_ ? 1 : 0,
                    .shares_memory = session.shares_memory() ? 1 : 0};
  std::copy_n(snapshots_.begin(), std::min(snapshots_.size(), now.snapshots.size()),
              now.snapshots.begin());
  return now;
}

void ParameterServer::end_gathering() {
  gathering_ = false;
  advance_ = true;
  const auto sharing = std::count_if(sessions_.begin(), sessions_.end(),
                                     [](const Session& s) { return s.shares_memory(); });
  say(fmt::format("{} workers, {} shared memory; holds {} shards, {} parameters", active_workers(),
                  sharing == 0 ? "without" : fmt::format("{} by", sharing), store_->ranges().size(),
                  store_->parameters().size()));
}

void ParameterServer::keep_time() {
  const Deadline now = Clock::now();
  if (gathering_ && now >= gather_until_) {
    if (!resumed_ || active_workers() == 0) {
      throw PeerError(fmt::format("ps {} {}", job_.task.index, who_did_not_come()));
    }
    say(who_did_not_come() + "; goes on without them");
    end_gathering();
  }
  if (now >= next_report_) {
    next_report_ = after_seconds(k_report_seconds);
    report();
  }
}

ParameterServer::Traffic ParameterServer::traffic() const {
  Traffic all = gone_;
  for (const Session& session : sessions_) {
    add_traffic(session, all);
  }
  return all;
}

void ParameterServer::report() {
  const Traffic all = traffic();
  const double seconds = -seconds_until(reported_at_);
  if (version() == reported_version_ || seconds <= 0) {
    return;
  }
  const auto rate = [&](std::uint64_t now, std::uint64_t before) {
    return static_cast<double>(now - before) / seconds / 1e6;
  };
  std::string extras;
  if (late_ > 0) {
    extras += fmt::format(", {} late pushes dropped", late_);
  }
  if (settings_ && !settings_->policy.is_sync()) {
    extras += fmt::format(", staleness at most {}", stale_most_);
  }
  say(fmt::format("step {}, {:.0f} updates/s, {:.1f} MB/s in, {:.1f} MB/s out, {:.1f} MB/s through "
                  "shared memory, {} workers{}",
                  version(), static_cast<double>(version() - reported_version_) / seconds,
                  rate(all.in, reported_.in), rate(all.out, reported_.out),
                  rate(all.shared, reported_.shared), active_workers(), extras));
  reported_ = all;
  reported_version_ = version();
  reported_at_ = Clock::now();
}

} // namespace trainer
