// What only a job's Secret may hold: variables, files and keys.
#pragma once

#include "backends/plan.h"

#include <map>
#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Stands in a plan for what is not shown.
inline constexpr const char* k_hidden = "***";

/// Variables of --env-file and --secret, and the names of those secrets that the cluster keeps,
/// since this machine does not. Reads this machine's files; throws UsageError naming flag, file and
/// line.
Surroundings read_secrets(const JobSpec& job);

/// The Secret's contents by key: `environment` as a shell's exports, `git-token`, the keys of
/// buckets, and the files of --config-file. Reads this machine's files; throws UsageError naming
/// the flag.
std::map<std::string, std::string> secret_contents(const Plan& plan);

/// The same with *** for every content, for the plan.
std::map<std::string, std::string> shown_contents(const JobSpec& job, const Surroundings& here);

} // namespace dtrain::kubernetes
