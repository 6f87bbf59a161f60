// Jobs as people read them: the tables that Arena's users know, and why a job failed.
#pragma once

#include "backends/job_status.h"
#include "cli/output/stream.h"
#include "submit/job_spec.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrain {

/// How long it has run, or ran; 0 before it starts.
Time age(const InstanceStatus& instance, Time now);

/// From its creation to its end, or to now.
Time age(const JobSummary& job, Time now);

/// "Running", as a Pod's status is written.
std::string instance_state(const InstanceStatus& instance);

/// "SIGKILL"; "signal 63" for one without a name.
std::string signal_name(int signal);

/// The engine's own words, or "worker-1 (rank 1) on node7 ended with exit code 3"; one line.
std::string cause_line(const FailureCause& cause);

/// A command as a shell would take it, with quotes where they are needed.
std::string shell_words(const std::vector<std::string>& words);

/// What `get NAME` prints beside the job and its instances.
struct JobDetails {
  bool wide = false;
  bool gpus = false;                                ///< Usage of each instance.
  std::optional<JobSpec> spec = {};                 ///< The job as submitted.
  std::optional<std::vector<JobEvent>> events = {}; ///< Events that the engine recorded.
};

/// The text of `get NAME`.
void print_job(Stream& out, const JobStatus& job, Time now, const JobDetails& details = {});

/// The table of `list`; all jobs belong to the backend.
void print_jobs(Stream& out, const std::vector<JobSummary>& jobs, std::string_view backend,
                Time now, bool wide, bool with_namespace);

/// The last lines of the failing rank's stderr, indented.
void print_last_stderr(Stream& out, const FailureCause& cause, std::string_view indent);

} // namespace dtrain
