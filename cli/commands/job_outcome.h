// The outcome of a job, for `wait` and `submit --wait`.
#pragma once

#include "cli/context.h"
#include "cli/target.h"

#include <string>

namespace dtrain {

/// Returns once the job has ended, with its last status.
JobStatus wait_for_end(const Target& target, const std::string& name);

/// Throws JobFailed, whose message names the cause, where the job failed.
void require_success(const JobStatus& job);

} // namespace dtrain
