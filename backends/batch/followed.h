// A job that is followed. Records in its folder tell when its ranks start and end; the queue, which
// reports no changes, is asked when a record has changed, and rarely otherwise.
#pragma once

#include "backends/batch/queue_system.h"
#include "backends/batch/queued_job.h"
#include "backends/batch/record.h"
#include "backends/batch/retry.h"

#include <functional>
#include <optional>
#include <string>

namespace dtrain::batch {

/// A job as its files and the queue have it.
struct Found {
  const QueueSystem* system;
  std::string folder; ///< The job's.
  JobRecord record;
  Queue queue;
  std::string unheard; ///< Why its accounting did not answer; empty: it did, or was not asked.

  JobStatus status() const;
};

class Followed {
 public:
  /// `find` asks the queue, too, and throws NotFound where the job is gone; `read_records` only
  /// reads its files: nothing where they are gone. `has_answered`: the queue has, before this.
  Followed(std::function<Found()> find, std::function<std::string(const Found&)> read_records,
           bool has_answered)
      : find_(std::move(find)), read_records_(std::move(read_records)), retry_(has_answered) {}

  /// The current state.
  const Found& look();

 private:
  void look_at_files();

  std::function<Found()> find_;
  std::function<std::string(const Found&)> read_records_;
  std::optional<Found> found_;
  std::string text_; ///< The text of its records.
  PollPace pace_;
  RetryPolicy retry_;
};

} // namespace dtrain::batch
