// A job's logs, from the files in its folder.
#pragma once

#include "backends/job_output.h"
#include "backends/supervised/store/job_view.h"

namespace dtrain {

/// As Backend::logs. Throws NotFound if the instance, or the previous run, does not exist.
void read_job_logs(const JobViewer& viewer, const JobFolder& folder, const JobRef& job,
                   const LogQuery& query, const LogSink& sink);

} // namespace dtrain
