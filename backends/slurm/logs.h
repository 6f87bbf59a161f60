// The ranks' output: a file each for stdout and stderr, byte for byte as they printed it, and one
// that says how long both were at which time.
#pragma once

#include "backends/backend.h"
#include "backends/slurm/login.h"

#include <functional>
#include <string>
#include <vector>

namespace dtrain::slurm {

/// Of a run that is over, or as far as it has come. `folder`: the run's.
void print_logs(const Login& login, const std::string& folder,
                const std::vector<std::string>& instances, const LogQuery& query,
                const LogSink& sink);

/// Until the job has ended, from run to run. `folder`: the job's.
void follow_logs(const Login& login, const std::string& folder,
                 const std::vector<std::string>& instances, const LogQuery& query,
                 const LogSink& sink, const std::function<JobStatus()>& status);

} // namespace dtrain::slurm
