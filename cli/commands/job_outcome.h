// How a job ended, for `wait` and `submit --wait`.
#pragma once

#include "cli/context.h"
#include "cli/target.h"

#include <functional>
#include <string>

namespace dtrain {

/// Returns once the job has ended, with its last status. `on_wait` is told why it does not run, as
/// that changes; it may be empty.
JobStatus wait_for_end(const Target& target, const std::string& name,
                       const std::function<void(const std::string&)>& on_wait);

/// The same, or, `until_running`, once all its instances run.
JobStatus wait_for_state(const Target& target, const std::string& name, bool until_running,
                         const std::function<void(const std::string&)>& on_wait);

/// Throws JobFailed, whose message names the cause, where the job failed.
void require_success(const JobStatus& job);

} // namespace dtrain
