// The ranks' output: a file each for stdout and stderr, byte for byte as they printed it, and one
// that says how long both were at which time. However long they are, a piece of each is in memory.
#pragma once

#include "backends/batch/login.h"
#include "backends/batch/record.h"
#include "backends/job_output.h"
#include "backends/job_status.h"

#include <functional>
#include <string>

namespace dtrain::batch {

/// Prints the output of the job's last run, or, if following, until the job has ended, from run to
/// run. `folder`: the job's. `status`: its current status.
void print_logs(const Login& login, const std::string& folder, const JobRecord& record,
                const LogQuery& query, const LogSink& sink,
                const std::function<JobStatus()>& status);

} // namespace dtrain::batch
