// How a gang reaches the number of workers that its plan has now.
#include "backends/supervised/gang/gang.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {

namespace {

using Clock = PollLoop::Clock;

bool has(const std::vector<GangRank>& ranks, const GangRank& wanted) {
  return position_of(ranks, wanted.instance) < ranks.size();
}

template <typename T>
auto at(std::vector<T>& list, std::size_t position) {
  return list.begin() + static_cast<std::ptrdiff_t>(position);
}

} // namespace

std::size_t position_of(const std::vector<GangRank>& ranks, const std::string& instance) {
  const auto found = std::find_if(ranks.begin(), ranks.end(),
                                  [&](const GangRank& rank) { return rank.instance == instance; });
  return static_cast<std::size_t>(found - ranks.begin());
}

/// Before a run: whatever the plan says.
void Gang::apply_plan() {
  if (!plan_changed_) {
    return;
  }
  plan_changed_ = false;
  plan_ = read_plan_();
  take_ranks();
  channel_.hold_devices(plan_);
}

/// Takes the plan's ranks, none of which has been started.
void Gang::take_ranks() {
  ranks_.clear();
  ranks_.resize(plan_.ranks.size());
  auto status = initial_status(plan_, channel_);
  record_.status.instances = std::move(status.instances);
  count_gpus(plan_, record_.status);
}

/// During a run: adds and removes workers, and leaves everything else alone.
void Gang::follow_plan() {
  if (!plan_changed_ || !has_run_ || state_ != State::running || deciders_succeeded_ ||
      !scaled_away_.empty()) {
    return;
  }
  plan_changed_ = false;
  try {
    const auto next = read_plan_();
    for (std::size_t i = ranks_.size(); i-- > 0;) {
      if (plan_.ranks[i].role == k_worker && !has(next.ranks, plan_.ranks[i])) {
        remove_rank(i);
      }
    }
    if (scaled_away_.empty()) {
      channel_.hold_devices(next);
    }
    std::string refused;
    const auto added = add_ranks(next, refused);
    place_.launcher_slots = plan_.launcher_slots = next.launcher_slots;
    show_hosts(); // Before those who read it.
    if (!added.empty()) {
      start_some(added, place_);
    }
    record_.status.reason = std::move(refused);
  } catch (const Error& error) {
    record_.status.reason = error.what(); // The others go on.
  }
  count_gpus(plan_, record_.status);
  write_record();
  reap(); // The last that decide may have been taken away.
}

/// Adds the plan's new workers up to the first that cannot be placed, as a rank is a position;
/// `refused`: why that one cannot.
std::vector<std::size_t> Gang::add_ranks(const GangPlan& next, std::string& refused) {
  std::vector<std::size_t> added;
  for (std::size_t i = 0; i < next.ranks.size(); ++i) {
    const auto& planned = next.ranks[i];
    if (planned.role != k_worker || has(plan_.ranks, planned)) {
      continue;
    }
    try {
      add_rank(i, planned);
    } catch (const Error& error) {
      refused = fmt::format("{} was not started: {}", planned.instance, error.what());
      channel_.hold_devices(plan_); // It has none after all.
      break;
    }
    added.push_back(i);
  }
  return added;
}

void Gang::add_rank(std::size_t position, const GangRank& planned) {
  auto output = make_output(planned);
  place_.ranks.insert(at(place_.ranks, position), channel_.place_one(planned));
  plan_.ranks.insert(at(plan_.ranks, position), planned);
  ranks_.insert(at(ranks_, position), Rank{.output = std::move(output)});
  record_.status.instances.insert(at(record_.status.instances, position),
                                  pending_instance(planned, false, channel_.node(planned)));
}

void Gang::remove_rank(std::size_t position) {
  if (ranks_[position].process != 0) {
    channel_.signal(ranks_[position].process, SIGTERM);
    ranks_[position].instance = plan_.ranks[position].instance;
    scaled_away_.push_back(std::move(ranks_[position]));
    leave_deadline_ = Clock::now() + std::chrono::milliseconds(plan_.grace_period_ms);
  } else if (ranks_[position].output) {
    channel_.end_leftovers(ranks_[position].last_process, plan_.ranks[position].instance);
    ranks_[position].output->finish();
  }
  ranks_.erase(at(ranks_, position));
  plan_.ranks.erase(at(plan_.ranks, position));
  place_.ranks.erase(at(place_.ranks, position));
  record_.status.instances.erase(at(record_.status.instances, position));
}

/// Its exit is not a failure: it was asked to end.
void Gang::scaled_away_ended(std::size_t leaver) {
  channel_.end_leftovers(scaled_away_[leaver].last_process, scaled_away_[leaver].instance);
  scaled_away_[leaver].output->finish();
  scaled_away_.erase(at(scaled_away_, leaver));
  if (scaled_away_.empty()) {
    leave_deadline_ = Clock::time_point::max();
    channel_.hold_devices(plan_);
    follow_plan();
  }
}

} // namespace dtrain
