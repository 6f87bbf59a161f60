// What follows the end of a gang's ranks, and the silence of their hosts.
#include "backends/supervised/gang/gang.h"
#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace dtrain {

namespace {

using Clock = PollLoop::Clock;
using std::chrono::milliseconds;

constexpr milliseconds k_record_interval{100};      ///< Between records of single ranks' ends.
constexpr milliseconds k_evaluator_timeout{60'000}; ///< To evaluate the last checkpoint.

} // namespace

void Gang::reap() {
  const bool by_itself = state_ == State::running; // Not ended by us, as later ends are.
  // Handles all ends known by now: the first may end the others.
  for (const auto& ending : channel_.ended()) {
    const auto is_it = [&](const Rank& rank) { return rank.process == ending.id; };
    const auto found = std::find_if(ranks_.begin(), ranks_.end(), is_it);
    if (found != ranks_.end()) {
      found->process = 0;
      rank_ended(static_cast<std::size_t>(found - ranks_.begin()), ending, by_itself);
      continue;
    }
    const auto leaver = std::find_if(scaled_away_.begin(), scaled_away_.end(), is_it);
    if (leaver != scaled_away_.end()) {
      scaled_away_ended(static_cast<std::size_t>(leaver - scaled_away_.begin()));
    }
  }
  note_suspects();
  const bool starts_more = restart_deadline_ != Clock::time_point::max();
  if (channel_.idle() && !starts_more) {
    state_ = State::ended;
  }
  if (state_ != State::running || !deciders_ended()) {
    return;
  }
  if (!any_runs()) {
    end(State::terminating); // Processes that ranks left behind.
  } else if (plan_.clean_tasks || !helpers_run()) {
    end_helpers();
  } else {
    deciders_succeeded_ = true;
  }
}

/// A host that does not answer may do so again: its ranks are not lost yet, but people are told.
void Gang::note_suspects() {
  auto now = channel_.suspects();
  if (now == suspects_) {
    return;
  }
  for (const auto& host : now) {
    if (!suspects_.contains(host)) {
      tell_ranks_of(host, "does not answer; waiting for it");
    }
  }
  for (const auto& host : suspects_) {
    if (!now.contains(host)) {
      tell_ranks_of(host, "answers again");
    }
  }
  auto& reason = record_.status.reason;
  if (reason != reason_of_suspects_ || suspects_.empty()) {
    reason_ = reason; // Something else has happened.
  }
  suspects_ = std::move(now);
  reason_of_suspects_ =
      suspects_.empty() ? "" : fmt::format("{} does not answer", fmt::join(suspects_, ", "));
  if (state_ == State::running) {
    reason = suspects_.empty() ? reason_ : reason_of_suspects_;
    write_record();
  }
}

void Gang::tell_ranks_of(const std::string& host, const std::string& what) {
  const auto text = fmt::format("dtrain: {} {}\n", host, what);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].process != 0 && ranks_[i].output && record_.status.instances[i].node == host) {
      ranks_[i].output->log().write(Stream::err, text, time_now());
    }
  }
}

/// Whether it ends by itself: TensorBoard does not, nor do workers that wait for their launcher.
bool Gang::is_waited_for(std::size_t rank) const {
  return plan_.ranks[rank].role != k_tensorboard && !plan_.is_held(plan_.ranks[rank]);
}

bool Gang::helpers_run() const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].process != 0 && is_waited_for(i)) {
      return true;
    }
  }
  return false;
}

/// Parameter servers have the grace period to end by themselves, once no evaluator is at work.
void Gang::end_helpers() {
  bool evaluates = false;
  bool works = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const bool runs = ranks_[i].process != 0;
    evaluates = evaluates || (runs && plan_.ranks[i].role == k_evaluator);
    works = works || (runs && is_waited_for(i));
  }
  if (!works) {
    deciders_succeeded_ = true;
    end(State::terminating);
    return;
  }
  if (deciders_succeeded_ && (evaluates || !evaluating_)) {
    return;
  }
  deciders_succeeded_ = true;
  evaluating_ = evaluates;
  const auto grace = milliseconds(plan_.grace_period_ms);
  end_deadline_ = Clock::now() + (evaluates ? std::max(grace, k_evaluator_timeout) : grace);
}

bool Gang::deciders_ended() const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].is_wanted() && plan_.ranks[i].decides) {
      return false;
    }
  }
  return true;
}

void Gang::rank_ended(std::size_t rank, const RankEnding& ending, bool by_itself) {
  auto& status = record_.status;
  auto& instance = status.instances[rank];
  ranks_[rank].output->drain();
  instance.ended = time_now();
  instance.exit_code = ending.exit_code;
  instance.signal = ending.signal;
  instance.phase = instance.exit_code == 0 ? Phase::succeeded
                   : by_itself             ? Phase::failed
                                           : Phase::terminated;
  // The end of a process that only waited for the job's end is not the job's failure.
  const bool failed =
      instance.exit_code != 0 && !deciders_succeeded_ && plan_.ranks[rank].role != k_tensorboard;
  if (!dirty_) {
    dirty_ = true;
    write_deadline_ = Clock::now() + k_record_interval;
  }
  if (by_itself && instance.exit_code == 0) {
    channel_.free_devices(ending.id, instance.name);
  }
  if (failed && !status.cause && !stopping_ && !suspending_) {
    rank_failed(rank, ending);
  }
}

/// "worker-1 on h2 ended with exit code 7"; more: what its name is followed by.
std::string Gang::text_of(std::size_t rank, const RankEnding& ending,
                          const std::string& more) const {
  const auto& instance = record_.status.instances[rank];
  const auto loss = ending.loss.empty() ? "its host does not answer" : printable(ending.loss);
  return fmt::format("{}{} on {} {}", instance.name, more, instance.node,
                     ending.is_loss()
                         ? "was lost: " + loss
                         : "ended with " + ending_text(ending.exit_code, ending.signal));
}

void Gang::rank_failed(std::size_t rank, const RankEnding& ending) {
  const auto& instance = record_.status.instances[rank];
  if (goes_on_without(rank, ending)) {
    if (!ranks_[rank].is_wanted()) {
      channel_.free_devices(ending.id, instance.name);
    }
    return;
  }
  FailureCause cause;
  const bool ranked = is_ranked_role(plan_.ranks[rank].role) && !plan_.is_held(plan_.ranks[rank]);
  cause.instance = instance.name;
  cause.rank = ranked ? static_cast<int>(rank) : -1;
  cause.node = instance.node;
  cause.exit_code = instance.exit_code;
  cause.signal = instance.signal;
  cause.last_stderr = ranks_[rank].output->log().last_stderr();
  cause.message = text_of(rank, ending, ranked ? fmt::format(" (rank {})", rank) : "");
  if (ranked && !plan_.ranks[rank].decides) {
    if (!worker_failure_ && !deciders_ended()) {
      worker_failure_ = std::move(cause);
      chief_deadline_ = Clock::now() + milliseconds(plan_.grace_period_ms);
    }
    return;
  }
  fail(worker_failure_ ? std::move(*worker_failure_) : std::move(cause)); // The first is the cause.
}

void Gang::fail(FailureCause cause) {
  record_.status.reason = cause.message;
  record_.status.cause = std::move(cause);
  chief_deadline_ = Clock::time_point::max();
  end(State::terminating);
}

} // namespace dtrain
