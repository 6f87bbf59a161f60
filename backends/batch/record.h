// The records of a job in its folder, one line of words each, so that one cat reads any number of
// jobs:
//
//   job {"name": …}                          the submission (job_line.h)
//   run NAMESPACE NAME RUN TIME JOBID NODE   the batch script starts the ranks, from the first node
//   up NAMESPACE NAME RUN TIME NODE          all of them have started, the first on that node
//   first NAMESPACE NAME RUN TIME INSTANCE CODE
//                                            the first of them to fail, for which the others are
//                                            ended
//   requeue NAMESPACE NAME RUN TIME          they have made room, and the job is requeued
//   end NAMESPACE NAME RUN TIME CODE         they have ended, the job with that code
//   start INSTANCE NODE PID TIME             a rank starts, in its run's folder
//   exit INSTANCE TIME CODE [told]           it has ended; as the queue had asked it to
//
// Times are nanoseconds since the epoch. Each task of an array leaves the same records: for task 7,
// NAME is "7/NAME", and INSTANCE "7/worker-0".
#pragma once

#include "backends/job_status.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::batch {

struct Run {
  int number = -1; ///< -1: none has begun.
  Time began = 0;
  bool is_up = false;      ///< All ranks have started.
  std::optional<int> code; ///< After its end.
  Time ended = 0;
  std::string node;         ///< The first rank's.
  std::string first_failed; ///< Instance; empty: none failed, or nobody saw which was the first.
};

struct RankRecord {
  std::string node;
  std::int64_t pid = 0;
  Time started = 0;
  Time ended = 0;
  std::optional<int> code;     ///< As in sh: 128 + signal.
  bool ended_by_queue = false; ///< The queue ended it; it did not fail by itself.
};

struct JobRecord {
  std::string id;      ///< The queue's; of an array's task "123_7". Empty: none was written down.
  std::string raw_id;  ///< Job number of the last run, as the queue's commands take it.
  Time submitted = 0;  ///< By the clock of the submitting machine; 0: not known.
  std::string cluster; ///< The cluster that got the job; empty: not known.
  /// The job is in another cluster than the one that is asked from here.
  bool is_elsewhere = false;
  int max_restarts = 0;
  bool may_requeue = false;
  int failures = 0; ///< Runs that ended with another code than 0.
  JobStatus status; ///< As known at submission; instances without their ends.
  Run run;          ///< The last.
  std::map<std::string, RankRecord, std::less<>> ranks;
  std::map<int, JobRecord> tasks; ///< Tasks of an array; its own run and ranks are empty then.

  /// "worker-0" …, of an array "0/worker-0" … of all its tasks.
  std::vector<std::string> instance_names() const;

  /// For an array the task of that instance, else the job itself.
  const JobRecord& part_of(std::string_view instance) const;

  /// "0/worker-0", "7/0/worker-0": what an instance's files in the job's folder begin with, in the
  /// last run.
  std::string files_of(std::string_view instance) const;

  void set_id(const std::string& number);

  /// Its last run ended well: the queue has nothing to add.
  bool has_succeeded() const { return run.code && *run.code == 0; }

  /// The batch script starts nothing more.
  bool has_ended() const { return run.code && (*run.code == 0 || failures > max_restarts); }
};

/// Records of any number of jobs, by "NAMESPACE/NAME". Jobs without a "job" line, and lines that
/// cannot be parsed, are left out.
std::map<std::string, JobRecord> read_records(std::string_view text);

/// "7/" of "7/worker-0", an instance of an array's; else nothing.
std::string_view task_prefix(std::string_view instance);

} // namespace dtrain::batch
