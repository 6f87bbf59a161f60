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
// Times are nanoseconds since the epoch. Each task of an array leaves the same: of its task 7 NAME
// is "7/NAME", and INSTANCE "7/worker-0".
#pragma once

#include "backends/slurm/queue.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  std::string id;     ///< Slurm's; of an array's task "123_7".
  std::string raw_id; ///< Of the last run, as srun takes it.
  int max_restarts = 0;
  bool may_requeue = false;
  int failures = 0; ///< Runs that ended with another code than 0.
  JobStatus status; ///< What the submission knew; its instances without their ends.
  Run run;          ///< The last.
  std::map<std::string, RankRecord, std::less<>> ranks;
  std::map<int, JobRecord> tasks; ///< Of an array; its own run and ranks are none then.

  /// "worker-0" …, of an array "0/worker-0" … of all its tasks.
  std::vector<std::string> instance_names() const;

  /// Of an array the task whose instance that is, else the job itself.
  const JobRecord& part_of(std::string_view instance) const;

  /// "0/worker-0", "7/0/worker-0": what an instance's files in the job's folder begin with, in the
  /// last run.
  std::string files_of(std::string_view instance) const;

  /// The batch script starts nothing more.
  bool has_ended() const { return run.code && (*run.code == 0 || failures > max_restarts); }
};

/// The line "job {…}" with its newline; of an empty id, submit.sh fills in Slurm's.
std::string write_job_line(const JobSpec& job, const std::string& id, Time now);

/// Of any number of jobs, by "NAMESPACE/NAME". Lines of jobs without a "job" line, and those that
/// cannot be read, are left out.
std::map<std::string, JobRecord> read_records(std::string_view text);

/// The job as it stands, no array. `queued`: what Slurm says; null where it no longer knows the
/// job.
JobStatus status_of(const JobRecord& record, const QueuedJob* queued);

/// The same of any job: an array's instances are those of all of its tasks, and it has ended when
/// all of them have.
JobStatus status_of(const JobRecord& record, const Queue& queue);

/// "7/" of "7/worker-0", an instance of an array's; else nothing.
std::string_view task_prefix(std::string_view instance);

} // namespace dtrain::slurm
