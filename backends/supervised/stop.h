// Ends a job's processes from outside.
#pragma once

#include "backends/supervised/store/job_folder.h"

#include <string>
#include <vector>

namespace dtrain {

/// Asks those who look after the job to end it and waits until they have. Where they do not answer
/// within the grace period and a little more, or end without having ended it, all processes of the
/// job are killed: theirs, those below them, those in the job's control group, and those with the
/// job's own id in their environment. Throws EngineError where some do not end even so.
void stop_job(const JobFolder& folder, const JobRecord& record);

/// Kills what is left of a job whose supervisor and guard are gone; returns the processes that do
/// not end.
std::vector<ProcessId> end_leftovers(const std::string& uid, const std::string& cgroup);

/// Throws EngineError that names those of `whose` processes, "job default/mnist", that are left.
void check_ended(const std::vector<ProcessId>& left, const std::string& whose);

/// Has the supervisor end the ranks in its own way, and waits until it has gone, as long as that
/// takes beyond the grace period.
void signal_job(const JobOwner& owner, int signal);

} // namespace dtrain
