// The contents of a job's Secret: variables, files and keys that may be nowhere else.
#pragma once

#include "backends/plan.h"

#include <map>
#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Stands in a plan for hidden contents.
inline constexpr const char* k_hidden = "***";

struct JobSecrets {
  std::vector<std::string> env;        ///< KEY=VALUE of --env-file and --secret.
  std::vector<std::string> of_cluster; ///< Names of --secret that this machine does not keep.
};

/// Reads this machine's files; throws UsageError naming flag, file and line.
JobSecrets read_secrets(const JobSpec& job);

/// The Secret's contents by key: `environment` as a shell's exports, `git-token`, the keys of
/// buckets, and the files of --config-file. Reads this machine's files; throws UsageError naming
/// the flag.
std::map<std::string, std::string> secret_contents(const Plan& plan);

/// The same with *** for every content, for the plan.
std::map<std::string, std::string> shown_contents(const JobSpec& job, const JobSecrets& secrets);

} // namespace dtrain::kubernetes
