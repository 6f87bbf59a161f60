// What a job left in its folder, one line each of words, so that one cat reads any number of jobs:
//
//   job {"name": …}                          the submission, once Slurm has taken the job
//   run NAMESPACE NAME RUN TIME JOBID        the batch script starts the ranks
//   up NAMESPACE NAME RUN TIME               all of them have started
//   requeue NAMESPACE NAME RUN TIME          they have made room, and the job is queued anew
//   end NAMESPACE NAME RUN TIME CODE         they have ended, srun with that code
//   start INSTANCE NODE PID TIME             a rank starts, in its run's folder
//   exit INSTANCE TIME CODE                  it has ended
//
// Times are nanoseconds since the epoch.
#pragma once

#include "backends/slurm/queue.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain::slurm {

struct Run {
  int number = -1; ///< -1: none has begun.
  Time began = 0;
  bool is_up = false;      ///< All ranks have started.
  std::optional<int> code; ///< After its end.
  Time ended = 0;
};

struct RankRecord {
  std::string node;
  std::int64_t pid = 0;
  Time started = 0;
  Time ended = 0;
  std::optional<int> code; ///< As sh has it: 128 + signal.
};

struct JobRecord {
  std::string id; ///< Slurm's.
  int max_restarts = 0;
  bool may_requeue = false;
  int failures = 0; ///< Runs that ended with another code than 0.
  JobStatus status; ///< What the submission knew; its instances without their ends.
  Run run;          ///< The last.
  std::map<std::string, RankRecord, std::less<>> ranks;

  /// The batch script starts nothing more.
  bool has_ended() const { return run.code && (*run.code == 0 || failures > max_restarts); }
};

/// The line "job {…}" with its newline; of an empty id, submit.sh fills in Slurm's.
std::string write_job_line(const JobSpec& job, const std::string& id, Time now);

/// Of any number of jobs, by "NAMESPACE/NAME". Lines of jobs without a "job" line, and those that
/// cannot be read, are left out.
std::map<std::string, JobRecord> read_records(std::string_view text);

/// The job as it stands. `queued`: what Slurm says; null where it no longer knows the job.
JobStatus status_of(const JobRecord& record, const QueuedJob* queued);

} // namespace dtrain::slurm
