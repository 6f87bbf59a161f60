// Jobs as data, for -o json and -o yaml. The keys are Arena's; `apiVersion` changes only when a
// key changes its meaning or goes.
#pragma once

#include "backends/backend.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

enum class DataFormat { json, yaml };

// Each is the whole text with its last newline. Bytes that are not UTF-8 become U+FFFD, but in a
// job's spec as YAML, which keeps them.
std::string jobs_data(const std::vector<JobSummary>& jobs, Time now, DataFormat format);
std::string job_data(const JobStatus& job, Time now, DataFormat format);
std::string spec_data(const JobSpec& job, DataFormat format);
/// What the instances of one job use.
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
