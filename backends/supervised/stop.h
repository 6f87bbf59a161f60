// Ends a job's processes from outside.
#pragma once

#include "backends/supervised/job_record.h"

namespace dtrain {

/// Asks those who look after the job to end it and waits until they have. Where they do not answer
/// within the grace period and a little more, they and all processes of the job are killed: by pid
/// and start time, found by the job's own id in their environment.
void stop_job(const JobRecord& record);

/// Has the supervisor end the ranks in its own way, and waits until it has gone, as long as that
/// takes beyond the grace period.
void signal_job(const JobOwner& owner, int signal);

} // namespace dtrain
