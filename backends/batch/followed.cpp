#include "backends/batch/followed.h"

#include "backends/batch/status.h"

#include <fmt/format.h>

#include <utility>

namespace dtrain::batch {

JobStatus Found::status() const {
  JobStatus status = status_of(record, queue, *system);
  if (!unheard.empty() && status.cause && !status.cause->exit_code && !status.cause->signal) {
    status.reason += fmt::format("; the accounting database does not answer ({})", unheard);
    status.cause->message = status.reason;
  }
  return status;
}

const Found& Followed::look() {
  if (found_ && !pace_.is_due()) {
    look_at_files();
  }
  if (!found_ || (pace_.is_due() && !found_->record.has_succeeded())) {
    found_ = retry_.ask(find_);
    pace_.asked();
  }
  return *found_;
}

void Followed::look_at_files() {
  const std::string text = read_records_(*found_);
  if (text == text_) {
    return;
  }
  const bool is_first = std::exchange(text_, text).empty();
  auto records = read_records(text);
  if (records.empty()) { // Deleted.
    found_.reset();
    return;
  }
  JobRecord& record = records.begin()->second;
  record.is_elsewhere = found_->record.is_elsewhere;
  for (auto& [index, task] : record.tasks) {
    task.is_elsewhere = record.is_elsewhere;
  }
  if (record.id.empty()) {
    record.set_id(found_->record.id);
  }
  found_->record = std::move(record);
  if (found_->record.has_ended()) {
    pace_.hurry(); // The queue may have ended what failed.
  } else if (!is_first) {
    pace_.changed();
  }
}

} // namespace dtrain::batch
