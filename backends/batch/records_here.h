// A job's files where they lie on this machine: read without a shell, which takes as long as all of
// dtrain.
#pragma once

#include "backends/batch/queue_system.h"
#include "backends/job_status.h"

#include <string>

namespace dtrain::batch {

/// "ENGINE/NAMESPACE/NAME", below state_folder(), in which a job's files are.
std::string job_folder(const QueueSystem& system, const JobRef& job);

/// The lines that read_records() takes for the job in that folder, which must not be an array: its
/// own lines and those of its last run. Missing files are left out; empty: the folder is gone.
std::string read_records_in(int folder);
std::string read_records_here(const std::string& folder);

} // namespace dtrain::batch
