// A job's code, brought into a folder: a Git repository at a ref, or a copy of a folder as it is.
#pragma once

#include "submit/job_spec.h"

#include <string>

namespace dtrain {

/// Fills `folder`, which is made, as sync_mode and sync_source say. Throws UsageError where the
/// repository or ref cannot be had, with git's own words. A token is never in an argument.
void bring_code(const JobSpec& job, const std::string& folder);

} // namespace dtrain
