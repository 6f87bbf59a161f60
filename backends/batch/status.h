// The status of a job, from the records in its folder and the queue's information.
#pragma once

#include "backends/batch/queue_system.h"
#include "backends/batch/queued_job.h"
#include "backends/batch/record.h"

namespace dtrain::batch {

/// The status of a job that is not an array. `queued`: the queue's information; null if it has no
/// record of the job.
JobStatus status_of(const JobRecord& record, const QueuedJob* queued, const QueueSystem& system);

/// The same for any job: an array has the instances of all of its tasks, and has ended when all of
/// them have.
JobStatus status_of(const JobRecord& record, const Queue& queue, const QueueSystem& system);

} // namespace dtrain::batch
