// Changing a job that is there: suspend, resume, scale; and submitting it again.
//
// Each change is a server-side apply of the fields that it is about, with a field manager of its
// own, so that managedFields says who changed what and one change leaves the others' fields alone.
#pragma once

#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/status/status.h"
#include "submit/job_spec.h"

namespace dtrain::kubernetes {

/// The Job controller deletes the Pods of a suspended Job and makes new ones when it is resumed.
/// False where it is so already. Throws NotFound, and UsageError where the job has ended.
bool set_suspended(ApiClient& api, const JobRef& ref, bool suspended);

/// Ends the Pods of these Jobs, as well as we may.
void end_jobs(ApiClient& api, const JobList& jobs);

/// Ends what of the job has not ended with it (left_over()). A JobSet's controller does that
/// itself.
void end_left_over(ApiClient& api, const JobObjects& objects);

/// Renders the job again with so many workers, from the description and templates that its
/// ConfigMap keeps; applies the ConfigMap, then the Job's counts. Pods that run keep the
/// environment they have.
void scale_job(ApiClient& api, const JobRef& ref, int workers);

/// The job as it was submitted, from the same description, for `clone`. Throws NotFound.
JobSpec submitted_spec(ApiClient& api, const JobRef& ref);

} // namespace dtrain::kubernetes
