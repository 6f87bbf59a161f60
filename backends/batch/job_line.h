// The first line of a job's record (record.h): the submission.
#pragma once

#include "backends/job_status.h"
#include "submit/job_spec.h"

#include <string>
#include <utility>
#include <vector>

namespace dtrain::batch {

/// What a job asks for through its queue's own options, as far as this room needs it.
struct QueueOptions {
  bool may_requeue =
      false;              ///< The queue may start it again, after a node failed or for another job.
  std::string array = {}; ///< "0-99%5"; empty: it is one job.
  std::string log = {};   ///< In the job's folder: the file to which the queue writes.
};

/// The instances that a job's script starts, in order.
std::vector<InstanceStatus> planned_instances(const JobSpec& job);

/// The line "job {…}" with its newline. It is written before the queue has the job, without a
/// number, and then in its place with the number: this is as long. `submitted`: as the cluster's
/// own clocks have it; 0: they cannot be asked.
std::string write_job_line(const JobSpec& job, const QueueOptions& options, const std::string& id,
                           Time now, const std::string& cluster = "", Time submitted = 0);

/// The text before the value of the number, which takes k_id_width bytes with the blanks that
/// follow it, and the text after.
std::pair<std::string, std::string> around_id(const std::string& line);
inline constexpr int k_id_width = 22;

} // namespace dtrain::batch
