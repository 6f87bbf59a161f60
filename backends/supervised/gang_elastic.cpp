// What a gang does in an elastic job when a worker is lost.
#include "backends/supervised/gang.h"
#include "backends/support/logs/time_text.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

namespace dtrain {

/// Of a worker that has failed in an elastic job: it comes back, or is not needed.
bool Gang::goes_on_without(std::size_t rank, const std::string& ending) {
  if (plan_.min_workers == 0 || !is_ranked_role(plan_.ranks[rank].role) ||
      state_ != State::running) {
    return false;
  }
  int running = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (is_ranked_role(plan_.ranks[i].role)) {
      running += ranks_[i].pid != 0 ? 1 : 0;
      if (i != rank && record_.status.instances[i].phase == Phase::succeeded) {
        return true; // The job is done: it was only late.
      }
    }
  }
  if (record_.status.restarts + anew_ < plan_.max_restarts && starts_anew(rank, ending)) {
    return true;
  }
  if (running < plan_.min_workers) {
    return false;
  }
  record_.status.reason = fmt::format("{}; {} go on", ending, running);
  return true;
}

bool Gang::starts_anew(std::size_t rank, const std::string& ending) {
  ++anew_;
  auto& instance = record_.status.instances[rank];
  const auto failed = instance;
  instance.exit_code.reset();
  instance.signal.reset();
  instance.ended = 0;
  try {
    auto place = place_;
    place.restart_count += anew_;
    start_rank(rank, place);
  } catch (const Error&) {
    instance = failed;
    return false;
  }
  const auto text = fmt::format("{}: started anew ({} of {})", ending,
                                record_.status.restarts + anew_, plan_.max_restarts);
  ranks_[rank].output->log().write(Stream::err, fmt::format("dtrain: {}\n", text), time_now());
  record_.status.reason = text;
  return true;
}

} // namespace dtrain
