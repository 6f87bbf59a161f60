// A job that is followed: what it leaves in its folder says when its ranks start and end. Slurm,
// which tells nobody of a change, is asked when something has changed there, and seldom else.
#pragma once

#include "backends/slurm/patience.h"
#include "backends/slurm/record.h"

#include <functional>
#include <optional>
#include <string>

namespace dtrain::slurm {

/// A job as its files and Slurm have it.
struct Found {
  std::string folder; ///< The job's.
  JobRecord record;
  Queue queue;
  std::string unheard; ///< Why its accounting did not answer; empty: it did, or was not asked.

  JobStatus status() const;
};

class Followed {
 public:
  /// `find` asks Slurm, too, and throws NotFound where the job is gone; `read_records` only reads
  /// its files: nothing where they are gone. `has_answered`: Slurm has, before this.
  Followed(std::function<Found()> find, std::function<std::string(const Found&)> read_records,
           bool has_answered)
      : find_(std::move(find)), read_records_(std::move(read_records)), patience_(has_answered) {}

  /// As it stands.
  const Found& look();

 private:
  void look_at_files();

  std::function<Found()> find_;
  std::function<std::string(const Found&)> read_records_;
  std::optional<Found> found_;
  std::string text_; ///< Its records.
  QueuePace pace_;
  Patience patience_;
};

} // namespace dtrain::slurm
