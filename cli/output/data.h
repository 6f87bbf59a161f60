// Jobs as data, for -o json and -o yaml. The keys are Arena's; `apiVersion` changes only when a
// key changes its meaning or goes.
#pragma once

#include "backends/job_status.h"
#include "submit/job_spec.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain {

enum class DataFormat { json, yaml };

// Each returns the whole text with its last newline. Bytes that are not UTF-8 become U+FFFD, except
// in a job's spec as YAML, which keeps them.
std::string jobs_data(const std::vector<JobSummary>& jobs, std::string_view backend, Time now,
                      DataFormat format);
std::string job_data(const JobStatus& job, std::string_view backend, Time now, DataFormat format);
/// A job with its spec, and its events if wanted; several jobs as a list.
struct WholeJob {
  JobStatus status;
  std::optional<JobSpec> spec; ///< Empty: the engine does not keep it.
  std::optional<std::vector<JobEvent>> events = {};
};
std::string whole_jobs_data(const std::vector<WholeJob>& jobs, std::string_view backend, Time now,
                            DataFormat format);
std::string explanation_data(const JobStatus& job, const std::string& state, const std::string& why,
                             const std::vector<std::string>& hints, DataFormat format);
/// A list of maps, keys in their order: named data, profiles, templates.
using Record = std::vector<std::pair<std::string, std::string>>;
std::string record_data(const Record& record, DataFormat format);
std::string records_data(const std::vector<Record>& records, DataFormat format);
std::string spec_data(const JobSpec& job, DataFormat format);
/// Usage of the instances of one job.
struct JobUsage {
  std::string name;
  std::vector<InstanceUsage> instances;
};
/// A list of instances, each with its job's name.
std::string usage_data(const std::vector<JobUsage>& jobs, DataFormat format);
std::string nodes_data(const std::vector<NodeStatus>& nodes, DataFormat format);
std::string check_data(const std::vector<CheckResult>& results, DataFormat format);
std::string version_data(std::string_view version, DataFormat format);

} // namespace dtrain
