// How a job stands: what it left in its folder, and what the queue says of it, as one.
#pragma once

#include "backends/batch/queue_system.h"
#include "backends/batch/queued_job.h"
#include "backends/batch/record.h"

namespace dtrain::batch {

/// The job as it stands, no array. `queued`: what the queue says; null where it has no record of
/// the job.
JobStatus status_of(const JobRecord& record, const QueuedJob* queued, const QueueSystem& system);

/// The same of any job: an array's instances are those of all of its tasks, and it has ended when
/// all of them have.
JobStatus status_of(const JobRecord& record, const Queue& queue, const QueueSystem& system);

} // namespace dtrain::batch
