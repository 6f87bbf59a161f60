#include "backends/batch/identity.h"

#include <fmt/format.h>

#include <cstdlib>

namespace dtrain::batch {
namespace {

constexpr Time k_skew =
    300 * k_second; ///< Largest difference of two machines' clocks, as munge allows.

bool has_word(std::string_view text, std::string_view word) {
  const auto at = text.find(word);
  return at != std::string_view::npos &&
         (at + word.size() == text.size() || text[at + word.size()] == ' ');
}

} // namespace

std::string comment_of(const JobRef& job) {
  return fmt::format("dtrain {}/{}", job.namespace_name, job.name);
}

bool is_ours(const JobRecord& record, const QueuedJob& job) {
  const Time since = record.submitted;
  const bool is_timed = since != 0 && job.submitted != 0;
  if (has_word(job.comment, comment_of({record.status.namespace_name, record.status.name}))) {
    return !is_timed || job.submitted >= since - k_skew; // Later, where it was requeued.
  }
  if (job.comment.find("dtrain ") != std::string::npos) {
    return false;
  }
  // Good enough to report; a job is never ended by its number alone (remove.sh).
  return !is_timed || std::abs(job.submitted - since) <= k_skew;
}

void find_number(JobRecord& record, const Queue& queue) {
  if (!record.id.empty()) {
    return;
  }
  const QueuedJob* last = nullptr;
  for (const auto& [id, job] : queue.jobs()) {
    if (has_word(job.comment, comment_of({record.status.namespace_name, record.status.name})) &&
        is_ours(record, job) && (last == nullptr || job.submitted > last->submitted)) {
      last = &job;
    }
  }
  if (last != nullptr) {
    record.set_id(last->id.substr(0, last->id.find('_')));
  }
}

void mark_elsewhere(JobRecord& record, const std::string& here) {
  record.is_elsewhere = !here.empty() && !record.cluster.empty() && record.cluster != here;
  for (auto& [index, task] : record.tasks) {
    task.is_elsewhere = record.is_elsewhere;
  }
}

} // namespace dtrain::batch
