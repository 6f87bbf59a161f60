// A job's files where they lie on this machine: read without a shell, which takes as long as all of
// dtrain.
#pragma once

#include "backends/batch/queue_system.h"
#include "backends/job_status.h"

#include <string>

namespace dtrain::batch {

/// "ENGINE/NAMESPACE/NAME", below state_folder(), in which a job's files are.
std::string job_folder(const QueueSystem& system, const JobRef& job);

/// What read_records() reads of the job in that folder, no array's: its lines and those of its last
/// run. What is not there yet is left out; empty: the folder is gone.
std::string read_records_in(int folder);
std::string read_records_here(const std::string& folder);

} // namespace dtrain::batch
