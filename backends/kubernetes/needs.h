// What a job needs to be there before it is submitted, and what only its Secret may hold.
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/api_client.h"

#include <map>
#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Variables of --env-file and --secret, and the names of those secrets that the cluster keeps,
/// since this machine does not.
struct JobSecrets {
  std::vector<std::string> env; ///< KEY=VALUE
  std::vector<std::string> of_cluster;
};

/// Reads this machine's files. Throws UsageError naming flag, file and line.
JobSecrets read_secrets(const JobSpec& job);

/// The Secret's contents by key: `environment` as a shell's exports, `git-token`, the keys of
/// buckets, and the files of --config-file. Reads this machine's files; throws UsageError naming
/// the flag.
std::map<std::string, std::string> secret_contents(const Plan& plan);

/// The same with *** for every content, for the plan.
std::map<std::string, std::string> shown_contents(const JobSpec& job, const JobSecrets& secrets);

/// Throws UsageError for a claim or a Secret that the job names and the cluster does not have, and
/// for a bucket that refuses us. Who may not look learns it from the job's reason. False where the
/// job names none.
bool require_objects(ApiClient& api, const Plan& plan);

} // namespace dtrain::kubernetes
