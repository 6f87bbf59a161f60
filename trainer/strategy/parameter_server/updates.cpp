#include "trainer/strategy/parameter_server/server.h"

namespace trainer {
void ParameterServer::pushed(Session& session) {
  if (session.generation != generation_) {
    session.drop_push(); // It has yet to hear of the restart.
    return;
  }
  session.member = true;
  session.clock = session.push()->step + 1;
  if (!settings_->policy.is_sync()) {
    stale_most_ = std::max(stale_most_, version() - session.push()->extra);
  }
}

void ParameterServer::update() {
  if (gathering_) {
    return;
  }
  for (auto pushes = next_pushes(); !pushes.empty(); pushes = next_pushes()) {
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
    if (version() % std::max<std::int64_t>(settings_->policy.snapshot_every, 1) == 0) {
      save();
    }
  }
  for (Session& session : sessions_) {
    answer(session);
  }
}

/// Of which an update is to be made now; none: there are not enough.
std::vector<Session*> ParameterServer::next_pushes() {
  std::vector<Session*> pushes;
  int members = 0;
  int able = 0;
  for (Session& session : sessions_) {
    if (session.over || !session.member) {
      continue;
    }
    if (!settings_->policy.is_sync()) {
      if (session.push()) {
        return {&session};
      }
      continue;
    }
    ++members;
    // One that waits for later values, which it saw at another server, adds nothing to these.
    able += session.waits_for && *session.waits_for > version() ? 0 : 1;
    if (session.push() && session.push()->step < version()) {
      ++late_; // A backup worker's.
      session.drop_push();
      session.waits_for = version();
    } else if (session.push() && session.push()->step == version()) {
      pushes.push_back(&session);
    }
  }
  const std::int64_t needed = std::max<std::int64_t>(
      1, std::min<std::int64_t>(able, members - settings_->policy.backup_workers));
  if (static_cast<std::int64_t>(pushes.size()) < needed) {
    return {};
  }
  std::sort(pushes.begin(), pushes.end(),
            [](const Session* a, const Session* b) { return a->worker() < b->worker(); });
  return pushes;
}

void ParameterServer::save() {
  if (settings_->policy.snapshot_every > 0 && !snapshot_folder_.empty()) {
    store_->save(snapshot_folder_, job_text(*settings_), k_snapshots_kept);
    snapshots_.insert(snapshots_.begin(), version());
    snapshots_.resize(std::min(snapshots_.size(), k_snapshots_kept));
  }
}

FrameFields ParameterServer::values_header() const {
  FrameFields fields{.step = version(),
                     .score = totals_,
                     .extra = done_.empty() ? settings_->workers : *done_.begin()};
  for (const Session& session : sessions_) {
    if (is_active(session)) {
      fields.extra = std::min<std::int64_t>(fields.extra, session.worker());
    }
  }
  return fields;
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
  const PsPolicy& policy = settings_->policy;
  if (!policy.is_sync() && policy.max_staleness >= 0 && session.member &&
      session.clock - slowest_clock() > policy.max_staleness) {
    return;
  }
  session.waits_for.reset();
  guarded(session, [&] { session.send_parameters(values_header(), store_->parameters()); });
}

void ParameterServer::pull(Session& session) {
  if (session.generation != generation_) {
    session.waits_for.reset(); // It has yet to hear of the restart.
  }
  answer(session);
}

void ParameterServer::begin(Session& session, const FrameFields& fields,
                            std::span<const std::byte> values) {
  if (fields.extra <= generation_ || restart(session, fields, values)) {
    session.generation = fields.extra;
    session.drop_push();
    session.waits_for.reset();
  }
}

/// Begins another generation. False where it has no such snapshot.
bool ParameterServer::restart(Session& session, const FrameFields& fields,
                              std::span<const std::byte> values) {
  const auto parameters = std::as_writable_bytes(store_->parameters());
  const bool is_new = fields.step < 0;
  if (is_new && values.size() != parameters.size()) {
    wrong_length();
  }
  if (is_new ? version() > 0
             : std::find(snapshots_.begin(), snapshots_.end(), fields.step) == snapshots_.end()) {
    refuse(session, fmt::format("ps {} has no snapshot of step {}", job_.task.index, fields.step));
    return false;
  }
  if (is_new) {
    std::copy(values.begin(), values.end(), parameters.begin());
    save();
  } else {
    store_->load(snapshot_folder_, job_text(*settings_), fields.step);
    snapshots_.erase(snapshots_.begin(),
                     std::find(snapshots_.begin(), snapshots_.end(), fields.step));
    resumed_ = true;
    say(fmt::format("resumes at step {} from {}", version(), snapshot_folder_));
  }
  generation_ = fields.extra;
  began_at_ = version();
  totals_ = {};
  for (Session& other : sessions_) {
    other.drop_push();
    other.waits_for.reset();
    if (&other != &session && is_active(other)) {
      guarded(other, [&] { welcome(other); });
    }
  }
  return true;
}

} // namespace trainer
