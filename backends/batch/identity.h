// Which of the queue's jobs is the one of a record: by its comment, when it was submitted, and the
// cluster that has it. A number alone says nothing: a cluster that is set up again begins at 1
// again, and one home may serve two clusters.
#pragma once

#include "backends/batch/queued_job.h"
#include "backends/batch/record.h"

#include <string>

namespace dtrain::batch {

/// "dtrain NAMESPACE/NAME", the comment of a job.
std::string comment_of(const JobRef& job);

/// Whether a job with the record's number is the record's job. Accounting may keep no comments, and
/// a site may set its own: then the time of submission decides.
bool is_ours(const JobRecord& record, const QueuedJob& job);

/// Finds the number for a record that has none: its submission was cut off after the queue had
/// accepted the job.
void find_number(JobRecord& record, const Queue& queue);

/// Marks the record of a job that another cluster than `here` has.
void mark_elsewhere(JobRecord& record, const std::string& here);

} // namespace dtrain::batch
