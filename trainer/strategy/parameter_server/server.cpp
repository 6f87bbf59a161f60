#include "trainer/strategy/parameter_server/server.h"

#include <algorithm>

#include <fmt/format.h>

#include "trainer/checkpoint/numbered_files.h"

namespace trainer {
namespace {

constexpr double k_report_seconds = 10; ///< Between lines of traffic.

}

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
  say(fmt::format("ends at step {}: {:.2f} MB in, {:.2f} MB out, {:.2f} MB through shared memory",
                  version(), now_.in / 1e6, now_.out / 1e6, now_.shared / 1e6));
}

std::string ParameterServer::begin(const WorkerHello& hello) {
  store_.emplace(hello.ranges(), hello.settings.learning_rate, device_);
  if (!snapshot_folder_.empty()) {
    remove_unfinished(snapshot_folder_);
    snapshots_ = ShardStore::snapshots(snapshot_folder_);
  }
  return "";
}

void ParameterServer::serve(Session& session, FrameType type) {
  switch (type) {
  case FrameType::hello:
    session.clock = slowest_clock();
    session.member = gathering_;
    [[fallthrough]];
  case FrameType::ask_state:
    session.send_state(state());
    break;
  case FrameType::begin:
    if (session.request().generation > generation_) { // Otherwise another worker was first.
      restart(session);
    }
    break;
  case FrameType::push:
    is_current(session) ? take_push(session) : session.drop_push();
    break;
  case FrameType::pull:
    if (!is_current(session)) { // The worker does not know of the restart yet.
      session.waits_for.reset();
    }
    break;
  default:
    unexpected_message();
  }
}

std::string ParameterServer::lose(int /*worker*/) {
  return fmt::format("at step {}, {} of {} workers left", version(), active_workers(), workers());
}

ServerState ParameterServer::state() const {
  ServerState now{.version = version(),
                  .generation = generation_,
                  .has_moved = version() > began_at_ ? 1 : 0,
                  .totals = totals_,
                  .first_worker = done_.empty() ? workers() : *done_.begin()};
  std::copy_n(snapshots_.begin(), std::min(snapshots_.size(), now.snapshots.size()),
              now.snapshots.begin());
  for (const Session& session : sessions_) {
    if (session.is_active()) {
      now.first_worker = std::min<std::int64_t>(now.first_worker, session.worker());
    }
  }
  return now;
}

void ParameterServer::take_push(Session& session) {
  session.member = true;
  session.clock = session.push()->step + 1;
  if (!agreed_->policy.is_sync()) {
    stale_most_ = std::max(stale_most_, version() - session.push()->version);
  }
  const auto values = static_cast<double>(store_->parameters().size());
  (session.shares_memory() ? now_.shared : now_.in) +=
      values * static_cast<double>(session.shares_memory() ? sizeof(float)
                                                           : wire_size(agreed_->gradients()));
}

/// Begins a new generation, from a snapshot or from the values of the worker.
void ParameterServer::restart(Session& session) {
  const Request& request = session.request();
  const auto parameters = std::as_writable_bytes(store_->parameters());
  const auto snapshot = std::find(snapshots_.begin(), snapshots_.end(), request.step);
  const bool is_new = request.step < 0;
  if (is_new && session.values().size() != parameters.size()) {
    wrong_length();
  }
  if (is_new ? version() > 0 : snapshot == snapshots_.end()) {
    const std::string why =
        fmt::format("ps {} has no snapshot of step {}", job_.task.index, request.step);
    refuse(session, why);
    throw LinkError(why);
  }
  if (is_new) {
    std::copy(session.values().begin(), session.values().end(), parameters.begin());
    save();
  } else {
    store_->load(snapshot_folder_, job_text(*agreed_), request.step);
    snapshots_.erase(snapshots_.begin(), snapshot);
    resumed_ = true;
    say(fmt::format("resumes at step {} from {}", version(), snapshot_folder_));
  }
  generation_ = request.generation;
  began_at_ = version();
  totals_ = {};
  for (Session& other : sessions_) {
    other.drop_push();
    other.waits_for.reset();
    if (&other != &session && other.is_active()) {
      guarded(other, [&] { other.send_state(state(), false); });
    }
  }
}

void ParameterServer::save() {
  if (agreed_->policy.snapshot_every > 0 && !snapshot_folder_.empty()) {
    store_->save(snapshot_folder_, job_text(*agreed_), k_snapshots_kept);
    snapshots_.insert(snapshots_.begin(), version());
    snapshots_.resize(std::min(snapshots_.size(), k_snapshots_kept));
  }
}

void ParameterServer::advance() {
  if (gathering_) {
    gather();
  }
  if (!gathering_) {
    for (auto pushes = next_pushes(); !pushes.empty(); pushes = next_pushes()) {
      update(pushes);
    }
  }
  for (Session& session : sessions_) {
    answer(session);
  }
  if (Clock::now() >= reported_.at + std::chrono::duration<double>(k_report_seconds)) {
    report();
  }
}

/// Waits for the workers of the job, and begins when all have come or the time is up.
void ParameterServer::gather() {
  const bool is_late = Clock::now() >= gather_until_;
  if (workers() == 0 || !missing_workers().empty()) {
    if (!is_late) {
      return;
    }
    if (!resumed_) {
      throw PeerError(fmt::format("ps {} {}", job_.task.index, who_did_not_come()));
    }
    say(who_did_not_come() + "; goes on without them");
  }
  gathering_ = false;
  const auto sharing = std::count_if(sessions_.begin(), sessions_.end(),
                                     [](const Session& s) { return s.shares_memory(); });
  say(fmt::format("{} workers, {} shared memory; holds {} shards, {} parameters", active_workers(),
                  sharing == 0 ? "without" : fmt::format("{} by", sharing), store_->ranges().size(),
                  store_->parameters().size()));
}

/// The pushes that make the next update; empty: there are not enough yet.
std::vector<Session*> ParameterServer::next_pushes() {
  std::vector<Session*> pushes;
  int members = 0;
  int able = 0;
  for (Session& session : sessions_) {
    if (session.over || !session.member) {
      continue;
    }
    if (!agreed_->policy.is_sync()) {
      if (session.push()) {
        return {&session};
      }
      continue;
    }
    ++members;
    // A worker that waits for later values, seen at another server, does not contribute to these.
    able += session.waits_for && *session.waits_for > version() ? 0 : 1;
    if (session.push() && session.push()->step < version()) {
      ++late_; // The push of a backup worker.
      session.drop_push();
      session.waits_for = version();
    } else if (session.push() && session.push()->step == version()) {
      pushes.push_back(&session);
    }
  }
  const std::int64_t needed = std::max<std::int64_t>(
      1, std::min<std::int64_t>(able, members - agreed_->policy.backup_workers));
  if (static_cast<std::int64_t>(pushes.size()) < needed) {
    return {};
  }
  std::sort(pushes.begin(), pushes.end(),
            [](const Session* a, const Session* b) { return a->worker() < b->worker(); });
  return pushes;
}

void ParameterServer::update(const std::vector<Session*>& pushes) {
  std::vector<Contribution> contributions;
  for (const Session* session : pushes) {
    contributions.push_back(session->contribution());
    totals_ += session->push()->score;
  }
  store_->apply(contributions);
  for (Session* session : pushes) {
    session->drop_push();
    session->waits_for = version();
  }
  if (version() % std::max<std::int64_t>(agreed_->policy.snapshot_every, 1) == 0) {
    save();
  }
}

std::int64_t ParameterServer::slowest_clock() const {
  std::int64_t slowest = -1;
  for (const Session& session : sessions_) {
    if (session.member && !session.over && (slowest < 0 || session.clock < slowest)) {
      slowest = session.clock;
    }
  }
  return std::max<std::int64_t>(slowest, 0);
}

/// Sends the values that the worker waits for, once they are there and it is not too far ahead.
void ParameterServer::answer(Session& session) {
  if (session.over || !session.waits_for || *session.waits_for > version()) {
    return;
  }
  const PsPolicy& policy = agreed_->policy;
  if (!policy.is_sync() && policy.max_staleness >= 0 && session.member &&
      session.clock - slowest_clock() > policy.max_staleness) {
    return;
  }
  session.waits_for.reset();
  const std::span<const float> values = store_->parameters();
  guarded(session, [&] { session.send_parameters(state(), values); });
  (session.shares_memory() ? now_.shared : now_.out) += static_cast<double>(values.size_bytes());
}

void ParameterServer::report() {
  const Figures before = std::exchange(reported_, now_);
  reported_.at = Clock::now();
  reported_.version = version();
  const double seconds = std::chrono::duration<double>(reported_.at - before.at).count();
  if (version() == before.version || seconds <= 0) {
    return;
  }
  std::string extras;
  if (late_ > 0) {
    extras += fmt::format(", {} late pushes dropped", late_);
  }
  if (agreed_ && !agreed_->policy.is_sync()) {
    extras += fmt::format(", staleness at most {}", stale_most_);
  }
  say(fmt::format("step {}, {:.0f} updates/s, {:.1f} MB/s in, {:.1f} MB/s out, {:.1f} MB/s through "
                  "shared memory, {} workers{}",
                  version(), static_cast<double>(version() - before.version) / seconds,
                  (now_.in - before.in) / seconds / 1e6, (now_.out - before.out) / seconds / 1e6,
                  (now_.shared - before.shared) / seconds / 1e6, active_workers(), extras));
}

} // namespace trainer
