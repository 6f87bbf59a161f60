// What a gang does when a worker of an elastic job is lost.
#include "backends/supervised/gang/gang.h"
#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/options/duration.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dtrain {

namespace {

using Clock = PollLoop::Clock;

/// Has the ranks take these hosts in their order; the last workers, for which there is none, go.
/// False, and nothing changed, where they would be fewer than an elastic job needs.
bool take_places(GangPlan& plan, const std::vector<std::string>& places) {
  auto ranks = plan.ranks;
  const auto offered = static_cast<std::ptrdiff_t>(places.size());
  while (std::count_if(ranks.begin(), ranks.end(), takes_slot) > offered) {
    const auto last = spare_worker(ranks, std::max(plan.min_workers, 1));
    if (last == ranks.end()) {
      return false;
    }
    ranks.erase(last);
  }
  auto place = places.begin();
  for (auto& rank : ranks) {
    rank.host = takes_slot(rank) ? *place++ : rank.host;
  }
  place_beside_first(ranks);
  plan.ranks = std::move(ranks);
  return true;
}

} // namespace

std::vector<GangRank>::iterator spare_worker(std::vector<GangRank>& ranks, int fewest) {
  const auto workers = std::count_if(
      ranks.begin(), ranks.end(), [](const GangRank& rank) { return is_ranked_role(rank.role); });
  const auto last = std::find_if(ranks.rbegin(), ranks.rend(),
                                 [](const GangRank& rank) { return rank.role == k_worker; });
  return workers <= fewest || last == ranks.rend() ? ranks.end() : std::prev(last.base());
}

bool takes_slot(const GangRank& rank) {
  return rank.role != k_launcher && rank.role != k_tensorboard;
}

void place_beside_first(std::vector<GangRank>& ranks) {
  const auto first = std::find_if(ranks.begin(), ranks.end(), takes_slot);
  for (auto& rank : ranks) {
    rank.host = takes_slot(rank) ? rank.host : first->host;
  }
}

bool leave_out_hosts(GangPlan& plan, const std::set<std::string>& lost) {
  std::vector<std::string> places;
  for (const auto& rank : plan.ranks) {
    if (takes_slot(rank) && !lost.contains(rank.host)) {
      places.push_back(rank.host);
    }
  }
  return take_places(plan, places);
}

std::string leave_out_place(GangPlan& plan, const std::string& instance) {
  std::vector<std::string> places;
  std::string last;
  for (const auto& rank : plan.ranks) {
    if (takes_slot(rank) && rank.instance != instance) {
      places.push_back(rank.host);
    }
    last = rank.role == k_worker ? rank.instance : last;
  }
  return take_places(plan, places) ? last : "";
}

/// Whether a failed worker of an elastic job can be done without: it is restarted, or not needed.
bool Gang::goes_on_without(std::size_t rank, const RankEnding& ending) {
  if (plan_.min_workers == 0 || !is_ranked_role(plan_.ranks[rank].role) ||
      state_ != State::running) {
    return false;
  }
  if (has_succeeded_peer(rank)) {
    return true; // The job is done: it was only late.
  }
  auto& worker = ranks_[rank];
  if (!worker.failed && may_restart()) {
    // The decision follows once everything that has happened by now is known.
    worker.failed = ending;
    start_at(rank, Clock::now());
    return true;
  }
  host_lost_ = host_lost_ || (ending.is_loss() && !worker.failed);
  const int running = wanted_workers();
  if (running < plan_.min_workers) {
    return false;
  }
  record_.status.reason = fmt::format("{}; workers left: {}", text_of(rank, ending), running);
  if (plan_.launcher_slots > 0) {
    show_hosts();
  }
  return true;
}

/// Before a restart, all hosts and devices are asked again, those that were lost before too.
void Gang::leave_out_lost() {
  if (plan_.min_workers == 0) {
    return;
  }
  if (record_.status.restarts > 0) {
    plan_ = read_plan_();
  }
  auto said = channel_.leave_out_lost(plan_);
  take_ranks();
  record_.status.reason = std::move(said);
}

bool Gang::has_succeeded_peer(std::size_t rank) const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (i != rank && is_ranked_role(plan_.ranks[i].role) &&
        record_.status.instances[i].phase == Phase::succeeded) {
      return true;
    }
  }
  return false;
}

int Gang::wanted_workers() const {
  int count = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    count += is_ranked_role(plan_.ranks[i].role) && ranks_[i].is_wanted() ? 1 : 0;
  }
  return count;
}

/// Handles a worker whose host is lost.
bool Gang::moves(std::size_t rank) {
  auto planned = plan_.ranks[rank];
  const auto place = channel_.move(planned);
  if (place) {
    record_.status.instances[rank].node = channel_.node(planned);
    place_.ranks[rank] = *place;
    plan_.ranks[rank] = std::move(planned);
  }
  return place.has_value();
}

void Gang::start_at(std::size_t rank, Clock::time_point when) {
  ranks_[rank].restart_at = when;
  restart_deadline_ = std::min(restart_deadline_, when);
}

bool Gang::may_restart() const {
  return !host_lost_ && record_.status.restarts + restarted_ < plan_.max_restarts;
}

bool Gang::any_is_moving() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.is_moving(); });
}

/// Handles a failed rank: returns true if it has been or will be restarted, on another host if its
/// own is lost.
bool Gang::restarts(std::size_t rank) {
  auto& worker = ranks_[rank];
  if (worker.is_pausing) {
    return start_again(rank);
  }
  const auto ending = text_of(rank, *worker.failed);
  if (worker.is_moving()) {
    try {
      host_lost_ = !may_restart() || !moves(rank);
    } catch (const WaitStopped&) { // Try again after that.
      start_at(rank, Clock::now());
      return true;
    }
  } else if (any_is_moving()) {
    start_at(rank, Clock::now());
    return true;
  }
  if (!may_restart()) {
    return false;
  }
  ++restarted_;
  worker.is_pausing = true;
  channel_.end_leftovers(worker.last_process, plan_.ranks[rank].instance);
  const auto pause = worker.backoff.pause_after(worker.began);
  if (pause == Backoff::Pause::zero()) {
    if (!start_again(rank)) {
      return false;
    }
  } else {
    start_at(rank, Clock::now() + pause);
  }
  const auto text =
      fmt::format("{}: restarted{} ({} of {})", ending,
                  pause == Backoff::Pause::zero() ? "" : " in " + format_duration(pause),
                  record_.status.restarts + restarted_, plan_.max_restarts);
  worker.output->log().write(Stream::err, fmt::format("dtrain: {}\n", text), time_now());
  record_.status.reason = text;
  return true;
}

bool Gang::start_again(std::size_t rank) {
  auto& instance = record_.status.instances[rank];
  const auto failed = instance;
  instance.exit_code.reset();
  instance.signal.reset();
  instance.ended = 0;
  try {
    channel_.prepare_restart(plan_.ranks[rank], place_.ranks[rank]);
    auto place = place_;
    place.restart_count += restarted_;
    start_some({rank}, place);
    ranks_[rank].failed.reset();
    ranks_[rank].is_pausing = false;
    if (plan_.launcher_slots > 0) {
      show_hosts();
    }
  } catch (const WaitStopped&) { // Try again after that.
    instance = failed;
    start_at(rank, Clock::now());
  } catch (const Error& error) {
    instance = failed;
    ranks_[rank].output->log().write(
        Stream::err, fmt::format("dtrain: cannot restart it: {}\n", error.what()), time_now());
    return false;
  }
  return true;
}

void Gang::start_those_due() {
  const auto now = Clock::now();
  restart_deadline_ = Clock::time_point::max();
  std::vector<std::size_t> due;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].restart_at > now) {
      restart_deadline_ = std::min(restart_deadline_, ranks_[i].restart_at);
    } else {
      due.push_back(i);
    }
  }
  std::stable_partition(due.begin(), due.end(),
                        [&](std::size_t i) { return ranks_[i].is_moving(); });
  for (const auto i : due) {
    auto& worker = ranks_[i];
    worker.restart_at = Clock::time_point::max();
    if (!has_succeeded_peer(i) && restarts(i)) {
      continue;
    }
    const auto ending = *worker.failed;
    rank_failed(i, ending);
    worker.failed.reset();
    worker.is_pausing = false;
    if (state_ != State::running) {
      return;
    }
  }
  write_record();
  reap(); // None may be left to wait for.
}

} // namespace dtrain
